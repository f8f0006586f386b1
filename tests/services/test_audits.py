"""Audits: who lies is found out, and nobody else is accused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np
import pytest

from diffuse_core.domain.audit_messages import (
    AuditMessage,
    Mirror,
    MirrorReady,
    Spots,
    TakeMirror,
    TellSpots,
)
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import (
    Ack,
    ForwardHidden,
    Hop,
    OpenSession,
    SessionMessage,
    SessionRefused,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.services.audit_desk import AuditFailed
from diffuse_core.services.link import Link
from diffuse_core.services.links import Links
from tests.services.audit_net import (
    PARTS,
    AuditNet,
    another_token,
    changed,
    noisy,
    scaled,
    swapped,
)
from tests.services.tiny_model import ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from diffuse_core.domain.kept import Piece
    from diffuse_core.model_ports import StageResult, StageStep
    from diffuse_core.services.generation import Generation
    from diffuse_core.services.run import ClientRun
    from tests.services.audit_net import Spoil
    from tests.services.stage_net import StageHost
    from tests.services.tiny_model import TinyModel

PROMPT, COUNT = 30, 24
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.9, top_k=40, top_p=0.9, seed=3),
    "penalties": SamplingParams(
        temperature=0.8, repetition_penalty=1.2, frequency_penalty=0.3, seed=4
    ),
}


@pytest.fixture
async def net(tiny: TinyModel) -> AsyncIterator[AuditNet]:
    async with AsyncExitStack() as stack:
        net = AuditNet(stack, tiny)
        await net.populate(3)
        yield net
        await net.idle()


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_honest_stages_agree(net: AuditNet, name: str) -> None:
    route = await net.answer(ids(PROMPT), COUNT, SAMPLINGS[name])
    assert len(net.told) == 3
    assert [found.node for found in net.told] == [node.hex() for node in route]
    assert [found.slice for found in net.told] == [Slice(*part) for part in PARTS]
    for found in net.told:
        (other,) = found.auditors
        assert (found.verdict, other.agrees, found.decided_by) == ("agrees", True, None)
        assert net.by_id(bytes.fromhex(other.auditor)).part == found.slice
        assert found.rows == PROMPT + COUNT - 1
        assert other.difference is None or other.difference <= found.tolerance
        assert other.nats is None or other.nats <= found.nats_tolerance
    assert [found.auditors[0].nats is None for found in net.told] == [True, True, False]
    assert net.accusing == []
    assert net.book.entries() == []


LIES = {"scaled": scaled, "noisy": noisy, "swapped": swapped}


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("lie", LIES)
async def test_a_stage_that_gives_other_rows_than_it_should_is_quarantined(
    net: AuditNet, index: int, lie: str
) -> None:
    liar = await caught(net, index, lambda host: spoil(host, changed(LIES[lie])))
    assert net.book.barred() == {liar.id}
    (told,) = net.accusing
    assert (told.node, told.slice, told.verdict) == (liar.id.hex(), liar.part, "differs")
    assert (told.quarantined, told.doubtful) == ((liar.id.hex(),), ())
    assert [one.agrees for one in told.auditors] == [False, False]
    assert all(one.difference > told.tolerance for one in told.auditors)
    assert told.decided_by == told.auditors[1].auditor
    for seed in range(4):
        assert liar.id not in await net.answer(ids(PROMPT), COUNT, chance=0, seed=seed)


@pytest.mark.slow
async def test_a_last_stage_that_draws_what_it_likes_is_quarantined(net: AuditNet) -> None:
    liar = await caught(net, 2, lambda host: spoil(host, another_token))
    assert net.book.barred() == {liar.id}
    (told,) = net.accusing
    assert all(one.nats > told.nats_tolerance for one in told.auditors)
    assert liar.id not in await net.answer(ids(PROMPT), COUNT)
    assert net.accusing == []


@pytest.mark.slow
async def test_one_wrong_token_in_an_answer_is_enough(net: AuditNet) -> None:
    def once(step: StageStep, found: StageResult) -> StageResult:
        return another_token(step, found) if step.position == PROMPT + 5 else found

    liar = await caught(net, 2, lambda host: spoil(host, once), speculate=False)
    assert net.book.barred() == {liar.id}


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1, 2])
async def test_a_replica_that_audits_falsely_is_found_by_the_third(
    net: AuditNet, index: int
) -> None:
    """Of three replicas two are honest: whichever is asked first, the liar is named."""
    liars: list[StageHost] = []

    def act(generation: Generation) -> None:
        honest = net.on(generation, index)
        liar = next(one for one in net.hosts if one.part == honest.part and one is not honest)
        liars.append(liar)
        liar.links.handle(TellSpots, lying)

    async def lying(link: Link, message: TellSpots, body: memoryview) -> None:
        if not message.given:
            await liars[0].stage._audits._on_tell(link, message, body)
            return
        numbers = np.full(message.rows * (len(message.spots) or 2), 9.0, np.float32)
        await link.send(Spots(message.session, message.position, message.given), numbers.tobytes())

    for seed in range(12):
        await net.answer(ids(PROMPT), COUNT, before=act, seed=seed)
        if net.book.barred():
            break
        liar = liars.pop()
        liar.links.handle(TellSpots, liar.stage._audits._on_tell)
    (liar,) = liars
    assert net.book.barred() == {liar.id}
    (told,) = net.accusing
    assert (told.verdict, told.quarantined) == ("agrees", (liar.id.hex(),))
    assert [one.agrees for one in told.auditors] == [False, True]
    assert told.decided_by == told.auditors[1].auditor


@pytest.mark.slow
async def test_without_a_third_both_are_only_doubtful(tiny: TinyModel) -> None:
    async with AsyncExitStack() as stack:
        net = AuditNet(stack, tiny)
        await net.populate(2)
        liar = await caught(net, 1, lambda host: spoil(host, changed(scaled)))
        assert net.book.barred() == set()
        assert net.book.doubtful() == {liar.id}
        (told,) = net.accusing
        assert (told.verdict, told.decided_by) == ("differs", None)
        assert (told.quarantined, told.doubtful) == ((), (liar.id.hex(),))
        assert told.reason == "there is no third to decide"
        liar.executor.spoil = None
        assert liar.id not in await net.answer(ids(PROMPT), COUNT, chance=0)


async def test_without_a_replica_nobody_is_accused(tiny: TinyModel) -> None:
    async with AsyncExitStack() as stack:
        net = AuditNet(stack, tiny)
        await net.populate(1)
        await net.answer(ids(PROMPT), COUNT)
        assert len(net.told) == 3
        assert all(found.verdict == "unaudited" for found in net.told)
        assert all("no other host of its layers" in found.reason for found in net.told)
        assert net.accusing == []


@pytest.mark.slow
async def test_a_stage_after_that_tells_what_it_did_not_take_makes_two_doubtful(
    net: AuditNet,
) -> None:
    falsify: list[StageHost] = []

    def act(generation: Generation) -> None:
        falsify.append(net.on(generation, 1))
        falsify.append(net.on(generation, 2))
        run = next(iter(falsify[1].stage._runs.values()))
        run.intake.taken.tell = lambda position, rows: bytes(4 * 16 * rows)

    await net.answer(ids(PROMPT), COUNT, before=act)
    middle, last = falsify
    assert net.book.barred() == set()
    assert {middle.id, last.id} <= net.book.doubtful()
    told = next(found for found in net.accusing if found.node == middle.id.hex())
    assert set(told.doubtful) == {middle.id.hex(), last.id.hex()}
    assert "does of what it gave" in told.reason


@pytest.mark.slow
async def test_a_stage_before_that_gives_replicas_other_rows_frames_nobody(net: AuditNet) -> None:
    def act(generation: Generation) -> None:
        first = net.on(generation, 0)
        run = next(iter(first.stage._runs.values()))
        kept = run.outlet.kept

        def false(position: int, end: int) -> Piece | None:
            piece = kept(position, end)
            return piece and replace(piece, data=bytes(byte ^ 1 for byte in piece.data[::-1]))

        run.outlet.kept = false

    route = await net.answer(ids(PROMPT), COUNT, before=act)
    assert route[1] not in net.book.barred()


async def test_the_same_doubt_beside_another_is_a_verdict(net: AuditNet) -> None:
    one, two, three = (host.id for host in net.hosts[:3])
    assert net.book.doubt(one, two) == set()
    assert net.book.doubt(one, two) == set()
    assert net.book.barred() == set()
    assert net.book.doubt(three, one) == {one}
    assert net.book.barred() == {one}


# --- strangers and floods ---------------------------------------------------------------


async def test_rows_go_only_to_the_node_that_the_client_named_and_that_asks(
    net: AuditNet,
) -> None:
    """Neither a stranger, nor the client for somebody who asks for nothing, has rows sent."""
    first, victim = net.hosts[0], net.hosts[-1]
    stranger = Links(net.memory.transport(Identity(b"x" * 32).node), Identity(b"x" * 32).node)
    net.stack.push_async_callback(stranger.close)
    heard: list[object] = []

    async def hear(_: Link, message: object, __: memoryview) -> None:
        heard.append(message)

    stranger.handle(MirrorReady, hear)
    stranger.handle(ForwardHidden, hear)
    stranger.handle(Spots, hear)
    stranger.handle(Ack, hear)

    async def intrude(run: ClientRun) -> None:
        first = net.by_id(run.route[0].node)
        link = await stranger.to(first.id, (first.address,))
        await link.send(Mirror(run.session, b"m" * 16, stranger._own, 10))
        await link.send(TakeMirror(b"m" * 16))
        await link.send(TellSpots(run.session, 0, 10, (1,), given=True))
        mine = run.stages[0]
        audit = b"n" * 16
        assert (
            await net.answers.ready(mine, audit, Mirror(run.session, audit, victim.id, 10)) == 10
        )
        await link.send(TakeMirror(audit))
        assert first.links.find(victim.id) is None
        (mirror,) = first.stage._audits._mirrors.values()
        assert mirror.link is None
        # A Session has one audit at a time, however many are asked for.
        for at in range(40):
            name = at.to_bytes(16, "big")
            await net.answers.ready(mine, name, Mirror(run.session, name, victim.id, 10))
        assert len(first.stage._audits._mirrors) == 1
        # Coordinates beyond the row's end give nothing.
        with pytest.raises(AuditFailed):
            await net.answers.spots(mine, run.session, 10, 1, (2**20 - 1,), given=True)
        assert len(await net.answers.spots(mine, run.session, 10, 1, (5,), given=True)) == 10

    await net.answer(ids(PROMPT), COUNT, chance=0.0, at_end=intrude)
    assert heard == []
    assert first.stage.sessions == 0
    # What a Session kept goes with it, also if its rows were never asked for.
    await net.idle()
    assert not any(host.stage._audits._mirrors for host in net.hosts)


async def test_coordinates_that_no_row_has_are_refused(net: AuditNet) -> None:
    host = net.hosts[0]
    link = await net.links.to(host.id, (host.address,))
    hops = tuple(
        Hop(net.by_part(part).id, (net.by_part(part).address,), Slice(*part)) for part in PARTS
    )
    answers: asyncio.Queue[object] = asyncio.Queue()

    async def hear(_: Link, message: object, __: memoryview) -> None:
        answers.put_nowait(message)

    net.links.handle(SessionRefused, hear)
    model, decoding = net.model, DecodingParams(8)
    asked = OpenSession(
        b"o" * 16, model.id, model.fingerprint, hops, 0, 20, 5, decoding, 4, spots=(5000,)
    )
    await link.send(asked)
    assert "counted from 0" in (await answers.get()).detail
    await link.send(msgspec.structs.replace(asked, spots=(), audit=True))
    assert "epoch" in (await answers.get()).detail


@pytest.mark.slow
async def test_nothing_of_an_audit_is_in_what_others_are_told(net: AuditNet) -> None:
    """No message of the wire but those of Sessions and audits names the liar."""
    sent: list[object] = []
    found = Link.send

    async def note(self: Link, message: object, body: bytes | memoryview = b"") -> None:
        sent.append(message)
        await found(self, message, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", note)
        liar = await caught(net, 1, lambda host: spoil(host, changed(scaled)))
    assert net.book.barred() == {liar.id}
    kinds = {type(message) for message in sent}
    assert kinds <= set(get_args(SessionMessage)) | set(get_args(AuditMessage))


async def caught(
    net: AuditNet, index: int, lie: Callable[[StageHost], None], **options: object
) -> StageHost:
    """The host that lies from the beginning of an answer on, on the Stage of an index."""
    liars: list[StageHost] = []

    def act(generation: Generation) -> None:
        liars.append(net.on(generation, index))
        lie(liars[0])

    await net.answer(ids(PROMPT), COUNT, before=act, **options)
    return liars[0]


def spoil(host: StageHost, lie: Spoil) -> None:
    host.executor.spoil = lie
