"""Scenarios of strife, with figures: partitions, liars, and observers that are half cut off."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from gathering import gather
from liars import FORGED, MadeUp, Villain, own_record
from model_records import LAYERS, host_record
from simulated_network import BOOT_MS
from watching import Watch, percentile

from diffuse_core.domain.records import COUNTER_BITS, first_sequence
from diffuse_core.domain.router import Candidate, choose_route
from diffuse_core.errors import ModelIncomplete

if TYPE_CHECKING:
    from simulated_network import SimulatedNetwork

    from diffuse_core.domain.identity import NodeId

STEP_S = 0.5
MAX_ATTEMPTS = 5
"""Of services.client: then a generation fails, and its user asks again."""
MAX_SEEKERS = 50


def partition(
    seed: int, nodes: int, *, seconds: float = 300.0, loss: float = 0.0
) -> dict[str, float]:
    """Two halves that do not hear each other for a while; seconds until there is one view again.

    A flap is a running node held for dead again by one that had it back.
    """
    net = gather(seed, nodes, loss=loss)
    watch = Watch(net)
    ids = [node.id for node in net.nodes]
    net.rng.shuffle(ids)
    half = set(ids[: nodes // 2])
    net.weather.part(half, set(ids) - half)
    net.run(seconds)
    apart = len(watch.held_dead)
    healed_at = net.now
    net.weather.heal()
    while watch.held_dead and net.now - healed_at < 300.0:
        net.run(STEP_S)
    one_view = net.now - healed_at
    net.run(120.0)
    last = max((one.at for one in watch.returns), default=healed_at)
    return {
        "pairs_apart": apart / (2 * len(half) * (nodes - len(half))),
        "one_view_s": one_view,
        "last_return_s": last - healed_at,
        "flaps": sum(one.at > healed_at for one in watch.deaths),
    }


def half_deaf(
    seed: int, nodes: int, *, lost: float = 0.5, deaf: int = 1, seconds: float = 300.0
) -> dict[str, float]:
    """Observers that lose a share of what is sent to them: whom they make dead, for whom."""
    net = gather(seed, nodes)
    watch = Watch(net)
    numbers = set(net.rng.sample(range(nodes), deaf))
    for number in numbers:
        net.weather.deaf[net.nodes[number].id] = lost
    net.run(seconds)
    return {
        "dead_for_others": sum(
            one.observer not in numbers and one.about not in numbers for one in watch.deaths
        ),
        "deaf_dead_for_others": sum(one.about in numbers for one in watch.deaths),
        "dead_for_the_deaf": sum(one.observer in numbers for one in watch.deaths),
        "suspicions_per_node_and_minute": watch.suspicions / nodes / seconds * 60,
    }


def liars(seed: int, nodes: int, *, share: float = 0.3, seconds: float = 60.0) -> dict[str, float]:
    """Some nodes lie all the time; what the honest ones come to believe.

    Tables are capped at 1.5 times the nodes that exist, and as many again are made up: so the
    flood does not fit, and a simulation of it ends today.
    """
    rng = random.Random(seed)
    made_up = cap = nodes * 3 // 2
    numbers = set(rng.sample(range(nodes), round(share * nodes)))
    invented = MadeUp(made_up, first_sequence(BOOT_MS))
    villains = {number: Villain(rng.getrandbits(32), invented) for number in numbers}
    net = gather(seed, nodes, record=host_record, liars=dict(villains), shared={"max_nodes": cap})
    net.silent.update(invented.ids[::2])
    watch = Watch(net)
    for number, villain in villains.items():
        villain.begin(net, net.nodes[number])
    before = net.traffic.copy()
    net.run(seconds)
    sent = net.traffic.since(before)
    honest = [number for number in range(nodes) if number not in numbers]
    return (
        {
            "table_cap": cap,
            "lies": sum(villain.lies for villain in villains.values()),
            "malformed": net.malformed,
            "honest_bytes_per_node_and_s": (sent.wire_bytes - sent.sizes["Lie"]) / nodes / seconds,
            "honest_held_dead_by_honest": sum(
                one.observer not in numbers and one.about not in numbers
                for one in watch.false_deaths
            ),
        }
        | _believed(net, honest)
        | _routes(net, honest, numbers)
    )


def _believed(net: SimulatedNetwork, honest: list[int]) -> dict[str, float]:
    """What honest nodes hold that is not so, at the worst of them."""
    truth = {net.nodes[number].id: own_record(net.nodes[number])[1] for number in honest}
    latest = first_sequence(BOOT_MS + int((net.now + 120.0) * 1000))
    found: Counter[str] = Counter()
    largest = 0
    for number in honest:
        members = net.members(number)
        largest = max(largest, len(members))
        known = {member.record.node: member.record for member in members}
        found["honest_missing"] += sum(node not in known for node in truth)
        for node, record in known.items():
            true = truth.get(node)
            if true is not None:
                found["forged"] += record.capacity == FORGED or record.sequence > true.sequence
            found["future"] += record.sequence > latest + (1 << COUNTER_BITS)
    return {
        "forged_held": found["forged"],
        "future_held": found["future"],
        "honest_missing": found["honest_missing"] / len(honest) ** 2,
        "largest_table": largest,
    }


def _routes(net: SimulatedNetwork, honest: list[int], numbers: set[int]) -> dict[str, float]:
    """Some honest nodes look for a route, as a client does.

    Liars and made-up nodes claim slices like anybody, but do not answer when a session is opened:
    then they are avoided, and the router is asked again. Found is a route of honest hosts only,
    before the router has none left to offer.
    """
    good = {net.nodes[number].id for number in honest}
    attempts = [_attempts(net, number, good) for number in honest[:MAX_SEEKERS]]
    return {
        "routes_found": sum(one < float("inf") for one in attempts) / len(attempts),
        "routes_in_one_go": sum(one <= MAX_ATTEMPTS for one in attempts) / len(attempts),
        "route_attempts_p50": percentile(attempts, 0.5),
        "route_attempts_max": max(attempts),
    }


def _attempts(net: SimulatedNetwork, number: int, good: set[NodeId]) -> float:
    candidates = [
        Candidate(node=member.record.node, slice=member.record.holding.slice, rtt_s=member.rtt_s)
        for member in net.members(number)
        if member.live and member.record.holding is not None
    ]
    avoid: set[NodeId] = set()
    rng = random.Random(number)
    attempt = 0
    while True:
        attempt += 1
        try:
            route = choose_route(LAYERS, candidates, avoid, rng)
        except ModelIncomplete:
            return float("inf")
        silent = {node for node, _ in route} - good
        if not silent:
            return float(attempt)
        avoid |= silent
