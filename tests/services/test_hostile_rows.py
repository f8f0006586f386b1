"""What rows hostile clients and stages may send: they end their own session, no other."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import session
from diffuse_core.domain.messages import (
    CloseSession,
    ForwardTokens,
    RowsRun,
    SessionFailed,
    TokensDrawn,
)
from diffuse_core.services import scheduler, stage_run
from tests.services.intruder import SESSION, WIDTH, Intruder, hidden
from tests.services.tiny_model import VOCAB
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.errors import Refused
    from diffuse_core.model_ports import StageResult, StageStep
    from tests.services.cluster import Cluster


BAD_TOKENS = {
    "later position": (ForwardTokens(SESSION, 1, (1, 2)), "position 1"),
    "beyond the vocabulary": (ForwardTokens(SESSION, 0, (1, VOCAB)), "token id"),
    "far beyond": (ForwardTokens(SESSION, 0, (2**24,)), "token id"),
    "beyond the budget": (ForwardTokens(SESSION, 0, (1,) * 41), "budget"),
    "a very long prompt": (ForwardTokens(SESSION, 0, (1,) * 8192), "budget"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
async def test_bad_tokens_end_only_their_session(pair: Cluster, running: bytes, name: str) -> None:
    message, said = BAD_TOKENS[name]
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    await link.send(message)
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert answer.reason == "invalid"
    assert said in answer.detail
    assert host.service.stage.sessions == 1


async def test_rows_cannot_come_twice(pair: Cluster, running: bytes) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    await link.send(ForwardTokens(SESSION, 0, (1, 2)))
    await link.send(ForwardTokens(SESSION, 0, (1, 2)))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert "2 was next" in answer.detail


BAD_HIDDEN = {
    "width": (hidden(2, WIDTH + 1), "do not fit"),
    "one wide": (hidden(2, 1), "do not fit"),
    "too few bytes": (hidden(2, body=bytes(4 * 2 * WIDTH - 1)), "do not fit"),
    "too many bytes": (hidden(2, body=bytes(4 * 2 * WIDTH + 4)), "do not fit"),
    "no bytes": (hidden(2, body=b""), "do not fit"),
    "another type": (hidden(2, dtype="bf16", body=bytes(2 * 2 * WIDTH)), "do not fit"),
    "NaN": (hidden(5, number=math.nan), "NaN"),
    "infinity": (hidden(5, number=math.inf), "NaN or infinity"),
    "later position": (hidden(2, position=3), "position 3"),
    "beyond the budget": (hidden(41), "budget"),
    "more than a pass takes": (hidden(600), "do not fit"),
}


@pytest.mark.parametrize("name", BAD_HIDDEN)
async def test_bad_hidden_states_end_only_their_session(
    pair: Cluster, running: bytes, name: str
) -> None:
    (message, body), said = BAD_HIDDEN[name]
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start > 0)
    link = await intruder.open(host)
    await link.send(*intruder.named(message, body))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert (answer.reason, answer.node, answer.kept) == ("invalid", intruder.id, True)
    assert said in answer.detail
    # It waits for others in place of who sent them; nothing more is taken from that one.
    await link.send(*intruder.named(*hidden(5)))
    await intruder.heard(host)
    assert host.service.stage.sessions == 2
    # Sound ones are taken, so it was not the test that was broken.
    await link.send(CloseSession(SESSION))
    await intruder.open(host)
    await link.send(*intruder.named(*hidden(5)))
    assert isinstance(await intruder.answer(), TokensDrawn)
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_a_flood_of_rows_ends_its_session(
    pair: Cluster, running: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MAX_STEPS", 4)
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    for position in range(30):
        await link.send(ForwardTokens(SESSION, position, (1,)))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert "too many rows" in answer.detail


async def test_a_client_cannot_feed_a_single_stage_what_it_did_not_draw(
    split: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor so get between a token and its way round the ring."""
    cluster = await split(1)
    host = cluster.hosts[0]
    plain, started, release = host.executors[0].run, threading.Event(), threading.Event()

    def held(steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        started.set()
        release.wait(10)
        return plain(steps)

    host.executors[0].run = held
    intruder = Intruder(cluster)
    link = await intruder.open(host)
    await link.send(ForwardTokens(SESSION, 0, (1,) * 5))
    await until(started.is_set)
    await link.send(ForwardTokens(SESSION, 5, (1,)))
    answer = await intruder.answer()
    release.set()
    assert isinstance(answer, SessionFailed)
    assert (answer.reason, answer.kept) == ("invalid", False)
    assert "not drawn" in answer.detail
    assert not link.closed
    assert not [record for record in caplog.records if record.exc_info]
    await host.idle()


async def test_hidden_states_do_not_pile_up(
    pair: Cluster, running: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends on without waiting for what was run is to blame."""
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start > 0)
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 5)
    link = await intruder.open(host, prompt=30)
    release = threading.Event()
    host.compute.post(lambda: release.wait(10))
    with monkeypatch.context() as patched:
        patched.setattr(session, "WINDOW_ROWS", 8)
        for position in range(0, 10, 5):
            await link.send(*intruder.named(*hidden(5, position=position)))
        answer = await intruder.answer()
    release.set()
    assert isinstance(answer, SessionFailed)
    assert (answer.node, answer.reason) == (intruder.id, "invalid")
    assert "more than 8 rows wait" in answer.detail
    assert len(intruder.run_on(host).lane.steps) <= 1
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)


async def test_a_next_stage_that_ran_more_than_it_was_sent_is_to_blame(
    pair: Cluster, running: bytes
) -> None:
    intruder = Intruder(pair)
    host = next(host for host in pair.hosts if host.service.slice.start == 0)
    link = await intruder.open(host)
    await link.send(RowsRun(running, 1))
    await link.send(*intruder.named(RowsRun(SESSION, 1)))
    answer = await intruder.answer()
    assert isinstance(answer, SessionFailed)
    assert (answer.node, answer.reason) == (intruder.id, "invalid")
    assert "more rows than it was sent" in answer.detail
    await link.send(CloseSession(SESSION))
    await intruder.heard(host)
    assert host.service.stage.sessions == 1
