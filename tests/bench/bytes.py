"""Bytes on the wire for each token: over every hop beside the hidden state, and to the client.

    python -m tests.bench.bytes [--tokens 40 240] [--dtype bf16] [--stages 10 10 10]

The link proxy counts what TCP carries, whatever it is: frames, seals, messages. Two answers of
different lengths are asked for; what the longer one takes more is divided by its tokens, so that
opening and closing cancel out. What gossip says meanwhile is measured while nothing is generated,
and taken off. Nothing is guessed ahead. Loss, headers of TCP and IP are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.domain.view import GenerateRequest
from tests.bench.answers import hear
from tests.bench.link_proxy import CLIENT
from tests.bench.report import Ratio, Report, common_options, conditions
from tests.bench.shaped_network import stages

if TYPE_CHECKING:
    from diffuse_core.services.client import ClientService
    from tests.bench.link_process import ProxyProcess

PROMPT = "The river rises in the mountains and"
GOAL = 64
IDLE_S = 10.0

Counts = dict[str, float]
"""Bytes by `from>to`."""


async def counted(
    proxy: ProxyProcess, client: ClientService, ask: GenerateRequest
) -> tuple[Counts, float, list[str]]:
    """What an answer took over each link, the seconds it took, and the nodes of its route."""
    before, began = await proxy.counts(), time.perf_counter()
    heard = await hear(client, ask)
    took = time.perf_counter() - began
    after = await proxy.counts()
    spent = {link: count - before.get(link, 0) for link, count in after.items()}
    return spent, took, [step.node for step in heard.route]


async def idle(proxy: ProxyProcess, seconds: float) -> Counts:
    """Bytes a second over each link while nothing is generated."""
    before = await proxy.counts()
    await asyncio.sleep(seconds)
    after = await proxy.counts()
    return {link: (count - before.get(link, 0)) / seconds for link, count in after.items()}


async def measure(given: argparse.Namespace) -> Report:
    """Each round a short answer and a long one."""
    report = Report("bytes", "bytes a token", conditions(given))
    short, long = given.tokens
    limited: dict[str, None] = {}
    hidden = given.width * ITEM_BYTES[given.dtype]
    async with stages(given, given.stages) as (network, model), network.client() as (_, client):
        base = GenerateRequest(
            model=model, raw=PROMPT, max_tokens=short, ignore_eos=True, speculate=False
        )
        asks = [_lasting(base, tokens) for tokens in (short, long)]
        await counted(network.proxy, client, asks[0])
        for _ in range(given.rounds):
            rest = await idle(network.proxy, IDLE_S)
            few, few_s, route = await counted(network.proxy, client, asks[0])
            many, many_s, _ = await counted(network.proxy, client, asks[1])
            names = [network.name_of(node) for node in route]
            for way, links, less, goal in _ways(names, hidden):
                spent = sum(
                    many.get(link, 0) - few.get(link, 0) - rest.get(link, 0.0) * (many_s - few_s)
                    for link in links
                )
                limited |= {way: None} if goal else {}
                report.add(way, spent / (long - short) - less)
    for way in limited:
        report.ratios.append(Ratio(way, statistics.median(report.rows[way]), "<=", GOAL))
    report.notes.append(f"a hidden state is {hidden} bytes, taken off on the hops that carry one")
    return report


def _lasting(base: GenerateRequest, tokens: int) -> GenerateRequest:
    return msgspec.structs.replace(base, max_tokens=tokens)


def _ways(route: list[str], hidden: int) -> list[tuple[str, list[str], int, bool]]:
    """What to tell: its name, its links, what is not counted, and whether it has a goal."""
    found = [
        (f"hop {one} to {other}, beside the hidden state", [f"{one}>{other}"], hidden, True)
        for one, other in itertools.pairwise(route)
    ]
    first, last = route[0], route[-1]
    if first != last:
        found.append((f"ring, {last} to {first}", [f"{last}>{first}"], 0, True))
    found.append((f"{last} to the client", [f"{last}>{CLIENT}"], 0, True))
    found.append((f"the client to {last}", [f"{CLIENT}>{last}"], 0, False))
    others = [f"{name}>{CLIENT}" for name in route[:-1]]
    found.append(("all other stages to the client", others, 0, False))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs=2, default=[40, 240])
    parser.add_argument("--stages", type=int, nargs="+", default=[10, 10, 10], help="layers")
    parser.add_argument("--width", type=int, default=576, help="of the hidden state, in numbers")
    common_options(parser, rounds=3)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
