"""What hostile clients and stages may do with routes and guesses: they end their own session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.domain.messages import (
    CloseSession,
    ForwardHidden,
    ForwardTokens,
    Hop,
    Reroute,
    Rerouted,
    Resume,
    RowsRun,
    SessionFailed,
    SessionOpened,
    TokensDrawn,
)
from diffuse_core.domain.session_memory import Wishes, session_bytes
from diffuse_core.domain.slices import Slice
from diffuse_core.services import stage_run
from diffuse_core.services.stage_dials import MOST_OF_ONE
from tests.services.intruder import SESSION, Intruder, hidden
from tests.services.tiny_model import LAYERS, VOCAB
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.cluster import Cluster, Host


def first_of(pair: Cluster) -> Host:
    return next(host for host in pair.hosts if host.service.slice.start == 0)


def last_of(pair: Cluster) -> Host:
    return next(host for host in pair.hosts if host.service.slice.start > 0)


def sound(intruder: Intruder, host: Host, epoch: int = 1, **changes: object) -> Reroute:
    opening = intruder.opening(host)
    plain = Reroute(opening.session, epoch, opening.route, opening.index)
    return msgspec.structs.replace(plain, **changes)


async def rerouted(intruder: Intruder) -> Rerouted:
    answer = await intruder.answer()
    assert isinstance(answer, Rerouted), answer
    return answer


@pytest.fixture
def intruder(pair: Cluster) -> Intruder:
    made = Intruder(pair)
    made.links.handle(Rerouted, made._hear)
    return made


async def test_a_stranger_cannot_lead_a_session_elsewhere(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    for host in pair.hosts:
        link = await intruder.to(host)
        await link.send(sound(intruder, host, session=running, epoch=7))
        answer = await intruder.answer()
        assert isinstance(answer, SessionFailed)
        assert (answer.node, answer.epoch, answer.kept) == (host.id, 7, False)
        await link.send(Resume(running, 0, 0, 31))
        await link.send(Resume(running, 7))
        # What it opens by that id is another one.
        await link.send(msgspec.structs.replace(intruder.opening(host), session=running, epoch=7))
        assert isinstance(await intruder.answer(), SessionOpened)
        assert host.service.stage.sessions == 2
        await link.send(CloseSession(running))
        await intruder.heard(host)
        assert host.service.stage.sessions == 1


def _hops(*parts: tuple[int, int], twice: bool = False) -> Callable:
    def make(host: Host) -> dict[str, object]:
        mine = host.service.slice
        hops = [
            Hop(host.id if Slice(*part) == mine or twice else bytes([n]) * 32, (), Slice(*part))
            for n, part in enumerate(parts)
        ]
        return {"route": tuple(hops)}

    return make


BROKEN = {
    "gap": (_hops((0, 5), (6, 10)), "jumps"),
    "too short": (_hops((0, 5), (5, 9)), "ends at layer 9"),
    "twice": (_hops((0, 5), (5, 10), twice=True), "twice"),
    "another part": (_hops((0, 4), (4, 10)), "not 0:4"),
    "another node": (_hops((0, 5), (5, 7), (7, 10)), ""),
    "index": (lambda _: {"index": 5}, "outside"),
    "not its place": (lambda _: {"index": 1}, "runs layers 0:5"),
    "drawn": (lambda _: {"drawn": 36}, "more tokens"),
    "drawn nothing": (lambda _: {"drawn": 2**20}, "more tokens"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_routes_end_the_session(
    pair: Cluster, running: bytes, intruder: Intruder, name: str
) -> None:
    make, said = BROKEN[name]
    host = first_of(pair)
    link = await intruder.open(host)
    await link.send(sound(intruder, host, **make(host)))
    answer = await intruder.answer()
    if name == "another node":
        # Sound, but for a next Stage that cannot be reached.
        assert (answer.node, answer.kept, answer.epoch) == (bytes([1]) * 32, True, 1)
        await link.send(CloseSession(SESSION))
        await intruder.heard(host)
    else:
        assert (answer.reason, answer.kept, answer.epoch) == ("invalid", False, 0)
        assert said in answer.detail
    assert host.service.stage.sessions == 1


async def test_epochs_do_not_go_back(pair: Cluster, running: bytes, intruder: Intruder) -> None:
    host = last_of(pair)
    link = await intruder.open(host)
    await link.send(sound(intruder, host, 5))
    assert (await rerouted(intruder)).epoch == 5
    for epoch in (0, 4, 5):
        await link.send(sound(intruder, host, epoch, index=0, drawn=2**20))
        await link.send(Resume(SESSION, epoch - 1 if epoch else 0, 3))
    # Rows of another Route are not looked at.
    await link.send(*intruder.named(*hidden(9, width=7)))
    message, body = intruder.named(*hidden(5))
    await link.send(msgspec.structs.replace(message, epoch=5), body)
    answer = await intruder.answer()
    assert isinstance(answer, TokensDrawn)
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_a_flood_of_routes_costs_one_session_one_task(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = last_of(pair)
    link = await intruder.open(host)
    for epoch in range(1, 300):
        await link.send(sound(intruder, host, epoch))
    while (await rerouted(intruder)).epoch < 299:
        pass
    names = [task.get_name() for task in host.service.stage._tasks._tasks]
    assert names.count("stage:session") == 2
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_after_bad_rows_good_ones_of_another_stage_are_taken(
    pair: Cluster, running: bytes, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a number in what came: the Session is as it was, and goes on."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 5)
    host = last_of(pair)
    link = await intruder.open(host, prompt=6)
    await link.send(*intruder.named(*hidden(5)))
    await link.send(*intruder.named(*hidden(1, position=5, number=float("nan"))))
    failed = await intruder.answer()
    assert (failed.node, failed.reason, failed.kept) == (intruder.id, "invalid", True)
    await link.send(sound(intruder, host))
    assert (await rerouted(intruder)).held == 5
    message, body = intruder.named(*hidden(1, position=5))
    await link.send(msgspec.structs.replace(message, epoch=1), body)
    answer = await intruder.answer()
    assert isinstance(answer, TokensDrawn)
    assert answer.position == 6
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


def guesses(position: int, rows: int, *drafts: int) -> tuple[ForwardHidden, bytes]:
    message, body = hidden(rows, position=position)
    return msgspec.structs.replace(message, drafts=drafts), body


BAD_GUESSES = {
    "of a prompt": (guesses(0, 3, 1, 2), "guessed rows"),
    "too few rows": (guesses(5, 2, 1, 2), "guessed rows"),
    "too many rows": (guesses(5, 4, 1, 2), "guessed rows"),
    "more than it can": (guesses(5, 32, *range(31)), "budget"),
    "across the prompt": (guesses(4, 3, 1, 2), ""),
    "before they were drawn": (guesses(6, 2, 1), ""),
}


@pytest.mark.parametrize("name", BAD_GUESSES)
async def test_bad_guesses_end_the_part_of_who_sent_them(
    pair: Cluster, running: bytes, intruder: Intruder, name: str
) -> None:
    (message, body), said = BAD_GUESSES[name]
    host = last_of(pair)
    link = await intruder.open(host, budget=30)
    if message.position:
        await link.send(*intruder.named(*hidden(5)))
        assert isinstance(await intruder.answer(), TokensDrawn)
    await link.send(*intruder.named(message, body))
    failed = await intruder.answer()
    assert isinstance(failed, SessionFailed)
    assert (failed.node, failed.reason, failed.kept) == (intruder.id, "invalid", True)
    assert said in failed.detail
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_tokens_that_come_round_early_do_not_pile_up(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = first_of(pair)
    link = await intruder.open(host)
    for position in range(10, 30):
        await link.send(*intruder.named(ForwardTokens(SESSION, position, (1,))))
    failed = await intruder.answer()
    assert isinstance(failed, SessionFailed)
    assert (failed.node, failed.kept) == (intruder.id, True)
    assert "before those" in failed.detail
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)
    assert host.service.stage.sessions == 1


async def test_tokens_beyond_the_budget_do_not_wait_to_be_early(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = first_of(pair)
    link = await intruder.open(host)
    await link.send(*intruder.named(ForwardTokens(SESSION, 10, (1,) * 8000)))
    failed = await intruder.answer()
    assert isinstance(failed, SessionFailed)
    assert (failed.node, failed.reason, failed.kept) == (intruder.id, "invalid", True)
    assert "beyond the budget" in failed.detail
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_rows_run_of_another_route_are_not_counted(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = first_of(pair)
    link = await intruder.open(host)
    await link.send(*intruder.named(RowsRun(SESSION, 100, 3)))
    await intruder.heard(host)
    assert not intruder.run_on(host)._accused
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_what_is_kept_is_counted_before(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = first_of(pair)
    stage = host.service.stage
    before = stage.kv_used
    link = await intruder.open(host, prompt=30)
    shape = host.service.model.shape
    counted = session_bytes(shape, "fp32", host.service.slice, 40, Wishes(prompt=30))
    assert stage.kv_used - before == counted
    await link.send(ForwardTokens(SESSION, 0, (1,) * 30))
    while (run := intruder.run_on(host)).state.ran < 30:
        await intruder.heard(host)
    assert run.outlet._kept.size == 30 * shape.hidden * 4
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)
    assert stage.kv_used == before
    assert shape.layers == LAYERS


async def test_an_opening_of_a_later_route_replaces_ones_own(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = last_of(pair)
    link = await intruder.open(host)
    used = host.service.stage.kv_used
    await link.send(intruder.opening(host, epoch=2))
    answer = await intruder.answer()
    assert isinstance(answer, SessionOpened)
    assert answer.epoch == 2
    assert host.service.stage.kv_used == used
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_who_says_that_it_holds_half_a_piece_is_to_blame_for_that(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host = first_of(pair)
    link = await intruder.open(host, prompt=10)
    await link.send(ForwardTokens(SESSION, 0, (1,) * 10))
    while intruder.run_on(host).state.ran < 10:
        await intruder.heard(host)
    await link.send(sound(intruder, host))
    assert (await rerouted(intruder)).held == 10
    await link.send(Resume(SESSION, 1, 3))
    failed = await intruder.answer()
    assert (failed.node, failed.reason, failed.kept) == (intruder.id, "invalid", True)
    assert host.service.stage.sessions == 2
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_a_last_stage_that_draws_what_the_model_does_not_have_is_to_blame(
    pair: Cluster, running: bytes, intruder: Intruder
) -> None:
    host, tail = first_of(pair), Intruder(pair)
    route, ring = intruder.opening(host).route, await tail.to(host)
    link = await intruder.open(
        host, route=(route[0], msgspec.structs.replace(route[1], node=tail.id))
    )
    await link.send(ForwardTokens(SESSION, 0, (1,) * 5))
    await ring.send(*intruder.named(ForwardTokens(SESSION, 5, (VOCAB,))))
    failed = await intruder.answer()
    assert (failed.node, failed.reason, failed.kept) == (tail.id, "invalid", True)
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_routes_to_nowhere_have_few_nodes_dialled(
    pair: Cluster, running: bytes, intruder: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = first_of(pair)
    link = await intruder.open(host)
    plain = sound(intruder, host)
    dialled: list[str] = []

    async def silent(address: str, *_: object) -> None:
        dialled.append(address)
        await asyncio.Event().wait()

    monkeypatch.setattr(host.node.links._transport, "dial", silent)
    for epoch in range(1, MOST_OF_ONE + 2):
        nowhere = Hop(bytes([epoch]) * 32, ("192.0.2.1:1",), plain.route[1].part)
        route = (plain.route[0], nowhere)
        await link.send(msgspec.structs.replace(plain, epoch=epoch, route=route))
        if epoch <= MOST_OF_ONE:
            await until(lambda epoch=epoch: len(dialled) == epoch)
    failed = await intruder.answer()
    assert (failed.reason, failed.kept) == ("lost", True)
    assert "too many nodes" in failed.detail
    assert len(dialled) == MOST_OF_ONE
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)
