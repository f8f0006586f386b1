"""What a failure or a farewell touches in the scheduler: its own session, at every point."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from diffuse_core.errors import Refused
from diffuse_core.services.lane import Lane
from tests.services.scheduler_desk import LONG, Desk
from tests.services.scripted_executor import WHOLE
from tests.services.waiting import until

# --- ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, LONG])
async def test_a_closed_session_loses_what_waits(desk: Desk, rows: int) -> None:
    first, doomed, last = await desk.lanes(3)
    with desk.executor.held() as hold:
        desk.give(first, rows)
        await until(hold.arrived)
        desk.give(doomed, rows)
        desk.give(doomed, rows)
        desk.give(last, rows)
        desk.scheduler.close(doomed)
        desk.give(doomed, rows)
    await desk.take_all(first)
    await desk.take_all(last)
    await desk.idle()
    assert doomed.session not in [whom for what, whom in desk.executor.passes() if what != "run"]
    assert not any(doomed.session in batch for batch in desk.executor.short_passes())
    assert desk.executor.calls.count(("close", doomed.session)) == 1
    assert set(desk.executor.seen) == {first.session, last.session}


async def test_a_session_closed_in_its_pass_ends_after_it(desk: Desk) -> None:
    doomed, other = await desk.lanes(2)
    with desk.executor.held() as hold:
        desk.give(doomed)
        desk.give(doomed)
        desk.give(other)
        await until(hold.arrived)
        desk.scheduler.close(doomed)
        desk.scheduler.close(doomed)
        again = Lane(doomed.session)
        desk.given[again] = []
        opening = asyncio.ensure_future(desk.scheduler.open(again, WHOLE, 100))
    await opening
    desk.give(again, [9])
    await desk.take_all(other)
    await desk.take_all(again)
    assert doomed.outcomes.empty()
    assert desk.executor.calls[2:] == [
        ("run", [b"00", b"01"]),
        ("close", b"00"),
        ("open", b"00"),
        ("run", [b"00"]),
    ]


@pytest.mark.parametrize("bits", [1, 3])
async def test_a_session_closed_in_its_long_pass_ends_at_the_next_bit(
    desk: Desk, bits: int
) -> None:
    doomed, other = await desk.lanes(2)
    desk.executor.bits = bits
    with desk.executor.held() as hold:
        desk.give(doomed, LONG)
        desk.give(doomed, LONG)
        await until(hold.arrived)
        desk.scheduler.close(doomed)
        again = Lane(doomed.session)
        desk.given[again] = []
        opening = asyncio.ensure_future(desk.scheduler.open(again, WHOLE, 100))
        desk.give(other, LONG)
    await opening
    desk.give(again, LONG)
    await desk.take_all(other)
    await desk.take_all(again)
    assert doomed.outcomes.empty()
    assert doomed.long is None
    calls = [call for call in desk.executor.calls if call[1] == b"00"]
    assert calls == [
        ("open", b"00"), ("start", b"00"), ("advance", b"00"), ("close", b"00"),
        ("open", b"00"), ("start", b"00"), *[("advance", b"00")] * bits,
    ]  # fmt: skip


async def test_a_session_closed_between_two_bits(desk: Desk) -> None:
    doomed, other = await desk.lanes(2)
    desk.executor.bits = 2
    with desk.executor.held() as first:
        desk.give(doomed, LONG)
        await until(first.arrived)
        desk.give(other)
        # Holds the short pass that comes between.
        with desk.executor.held() as second:
            first.release()
            await until(second.arrived)
            desk.scheduler.close(doomed)
    await desk.take_all(other)
    await desk.idle()
    assert desk.executor.passes() == [("start", b"00"), ("advance", b"00"), ("run", [b"01"])]
    assert doomed.long is None


async def test_stopping_runs_nothing_more_and_lets_go_of_the_executor() -> None:
    desk = Desk()
    (lane,) = await desk.lanes(1)
    with desk.executor.held() as hold:
        desk.give(lane)
        desk.give(lane)
        await until(hold.arrived)
        await desk.scheduler.stop()
    await desk.idle()
    assert desk.executor.short_passes() == [[b"00"]]
    desk.compute.close()
    gone = weakref.ref(desk.executor)
    del desk, lane, hold
    gc.collect()
    assert gone() is None


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, LONG])
async def test_a_refused_step_fails_its_session_only(desk: Desk, rows: int) -> None:
    bad, *good = await desk.lanes(4)
    desk.executor.refuse.add(bad.session)
    for lane in (bad, *good):
        desk.give(lane, rows)
        desk.give(lane, rows)
    with pytest.raises(Refused, match=r"bad|started"):
        await desk.take(bad)
    # Nothing of it runs any more, not even what comes now.
    desk.give(bad, rows)
    for lane in good:
        await desk.take_all(lane)
    assert bad.outcomes.empty()
    desk.scheduler.close(bad)
    await desk.idle()
    assert bad.session not in desk.executor.seen


async def test_numbers_that_fail_at_the_end_of_a_long_pass(desk: Desk) -> None:
    bad, good = await desk.lanes(2)
    desk.executor.bits = 3
    desk.give(bad, LONG)
    desk.give(good, LONG)
    with desk.executor.held() as hold:
        await until(hold.arrived)
        desk.executor.refuse.add(bad.session)
    with pytest.raises(Refused, match="bad"):
        await desk.take(bad)
    await desk.take_all(good)


@pytest.mark.parametrize("rows", [1, LONG])
async def test_an_executor_that_breaks_fails_who_was_in_that_pass(
    desk: Desk, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    bad, other = await desk.lanes(2)
    desk.executor.explode.add(bad.session)
    with desk.executor.held() as hold:
        desk.give(bad, rows)
        await until(hold.arrived)
        desk.give(other, rows)
    with pytest.raises(Refused, match="the pass failed: RuntimeError") as got:
        await desk.take(bad)
    assert got.value.reason == "lost"
    await desk.take_all(other)
    assert len(caplog.records) == 1
    desk.give(other, rows)
    await desk.take_all(other)


async def test_all_of_a_broken_pass_are_told(desk: Desk) -> None:
    lanes = await desk.lanes(5)
    desk.executor.explode.add(b"03")
    for lane in lanes:
        desk.give(lane)
    for lane in lanes:
        with pytest.raises(Refused, match="RuntimeError"):
            await desk.take(lane)


async def test_outcomes_that_are_too_few_go_to_nobody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = await desk.lanes(2)
    monkeypatch.setattr(desk.executor, "run", lambda steps: desk.executor.__class__.run(
        desk.executor, steps)[1:])  # fmt: skip
    for lane in lanes:
        desk.give(lane)
    for lane in lanes:
        with pytest.raises(Refused, match="RuntimeError"):
            await desk.take(lane)


async def test_a_session_that_cannot_be_opened(desk: Desk) -> None:
    await desk.lane("a")
    with pytest.raises(Refused, match="already"):
        await desk.lane("a")


async def test_a_lane_that_was_closed_before_it_was_opened_leaves_nothing(desk: Desk) -> None:
    lane = Lane(b"early")
    opening = asyncio.ensure_future(desk.scheduler.open(lane, WHOLE, 100))
    desk.scheduler.close(lane)
    with pytest.raises(Refused, match="before it was opened"):
        await opening
    await desk.idle()
    assert ("open", b"early") not in desk.executor.calls
