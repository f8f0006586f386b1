"""Who runs when, and with whom: order, fairness, bounds."""

from __future__ import annotations

import asyncio
import random
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from diffuse_core.errors import Refused
from diffuse_core.services import scheduler as scheduler_module
from diffuse_core.services.lane import AHEAD, ALIKE, SHORT_ROWS, Lane
from diffuse_core.services.pass_costs import (
    BRIEF_S,
    LONG_SHARE,
    QUIET_BIT_S,
    QUIET_S,
    REMEMBERED,
)
from diffuse_core.services.scheduler import MAX_BATCH
from tests.services.scheduler_desk import LONG, Desk
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.model_ports import StageStep


def alternate(kinds: list[str]) -> bool:
    """As long as there are bits of long passes, one comes between two short ones."""
    both = kinds[: len(kinds) - kinds[::-1].index("advance")]
    return all(one != other for one, other in pairwise(both))


def names(lanes: Sequence[Lane]) -> list[bytes]:
    return [lane.session for lane in lanes]


# --- together -------------------------------------------------------------------------------


async def test_what_waits_runs_in_one_pass(desk: Desk) -> None:
    lanes = await desk.lanes(9)
    with desk.executor.held() as hold:
        desk.give(lanes[0])
        await until(hold.arrived)
        for lane in lanes[1:]:
            desk.give(lane)
    for lane in lanes:
        await desk.take_all(lane)
    assert desk.executor.short_passes() == [names(lanes[:1]), names(lanes[1:])]


async def test_what_arrives_in_one_breath_runs_together(desk: Desk) -> None:
    lanes = await desk.lanes(8)
    for lane in lanes:
        desk.give(lane)
    for lane in lanes:
        await desk.take_all(lane)
    assert desk.executor.short_passes() == [names(lanes)]


async def test_nobody_waits_for_a_batch_to_fill(desk: Desk) -> None:
    first, _ = await desk.lanes(2)
    for _ in range(3):
        desk.give(first)
        await desk.take_all(first)
    assert desk.executor.short_passes() == [[b"00"]] * 3


async def test_sessions_out_of_step_fall_into_step(desk: Desk) -> None:
    one, other = await desk.lanes(2)

    async def decode(lane: Lane) -> None:
        for _ in range(5):
            desk.give(lane)
            await desk.take_all(lane)

    with desk.executor.held() as hold:
        first = asyncio.create_task(decode(one))
        await until(hold.arrived)
        second = asyncio.create_task(decode(other))
        await until(lambda: len(other.steps))
    await asyncio.gather(first, second)
    together = [b"00", b"01"]
    passes = [sorted(whom) for whom in desk.executor.short_passes()]
    assert passes == [[b"00"], *[together] * 4, [b"01"]]


async def test_a_session_has_one_step_in_a_pass_and_its_steps_in_order(desk: Desk) -> None:
    one, other = await desk.lanes(2)
    for _ in range(3):
        desk.give(one)
    desk.give(other)
    assert [await desk.take(one) for _ in range(3)] == [1, 2, 3]
    await desk.take_all(other)
    assert desk.executor.short_passes() == [[b"00", b"01"], [b"00"], [b"00"]]


async def test_a_pass_has_a_limit_and_the_rest_is_next(desk: Desk) -> None:
    lanes = await desk.lanes(MAX_BATCH + 6)
    for lane in lanes:
        desk.give(lane)
        desk.give(lane)
    for lane in lanes:
        await desk.take_all(lane)
    first, second, third = desk.executor.short_passes()
    assert first == names(lanes[:MAX_BATCH])
    # Those who waited come before those who had a turn.
    assert second[:6] == names(lanes[MAX_BATCH:])
    assert len(second) == MAX_BATCH
    assert len(third) == 2 * len(lanes) - 2 * MAX_BATCH


async def test_rows_decide_what_is_short(desk: Desk) -> None:
    lanes = await desk.lanes(3)
    for lane, rows in zip(lanes, (SHORT_ROWS, SHORT_ROWS + 1, 1), strict=True):
        desk.give(lane, rows)
    for lane in lanes:
        await desk.take_all(lane)
    assert desk.executor.passes() == [
        ("run", [b"00", b"02"]),
        ("start", b"01"),
        ("advance", b"01"),
    ]


async def test_the_meter_counts_rows_and_times_short_passes(desk: Desk) -> None:
    lanes = await desk.lanes(4)
    for lane in lanes:
        desk.give(lane)
    for lane in lanes:
        await desk.take_all(lane)
    desk.give(lanes[0], LONG)
    await desk.take_all(lanes[0])
    assert desk.meter.tokens_per_s() == 4 + LONG
    assert desk.meter.step_ms() == pytest.approx(10.0)


# --- long passes ----------------------------------------------------------------------------


async def test_a_long_pass_goes_on_between_short_ones_no_longer_than_they(desk: Desk) -> None:
    running, prompt = await desk.lanes(2)
    desk.executor.bits = 6
    desk.give(running)
    await desk.take_all(running)
    desk.give(prompt, LONG)
    for _ in range(8):
        desk.give(running)
        await desk.take_all(running)
    await desk.take_all(prompt)
    kinds = [what for what, _ in desk.executor.passes() if what != "start"]
    assert (kinds.count("run"), kinds.count("advance")) == (9, 6)
    assert alternate(kinds[1:])
    assert desk.executor.bit_seconds == [pytest.approx(LONG_SHARE * 0.01)] * 6


async def test_a_token_waits_at_most_twice_as_long_while_a_prompt_arrives(desk: Desk) -> None:
    running, prompt = await desk.lanes(2)
    desk.executor.bits = 4
    desk.give(running)
    await desk.take_all(running)
    alone = desk.executor.short_s
    for _ in range(16):
        desk.give(prompt, LONG)
    for _ in range(70):
        desk.give(running)
        await desk.take_all(running)
        while not prompt.outcomes.empty():
            await desk.take(prompt)
    waits = [after - before for before, after in pairwise(desk.executor.short_ends)]
    assert max(waits) <= 2 * alone
    assert len(desk.executor.bit_seconds) == 64


async def test_one_slow_short_pass_does_not_make_long_bits(desk: Desk) -> None:
    running, prompt = await desk.lanes(2)
    for short_s in (0.01, 0.01, 0.01, 3.0):
        desk.executor.short_s = short_s
        desk.give(running)
        await desk.take_all(running)
    desk.give(prompt, LONG)
    await desk.take_all(prompt)
    assert desk.executor.bit_seconds == [pytest.approx(LONG_SHARE * 0.01)]


async def test_a_prompt_alone_goes_in_larger_bits(desk: Desk) -> None:
    running, prompt = await desk.lanes(2)
    desk.give(prompt, LONG)
    await desk.take_all(prompt)
    desk.give(running)
    await desk.take_all(running)
    # Nothing waits, but somebody is being answered: their token may be on its way round.
    desk.give(prompt, LONG)
    await desk.take_all(prompt)
    desk.clock.now += QUIET_S + 0.1
    desk.give(prompt, LONG)
    await desk.take_all(prompt)
    small = pytest.approx(LONG_SHARE * 0.01)
    assert desk.executor.bit_seconds == [QUIET_BIT_S, small, QUIET_BIT_S]


async def test_short_work_comes_between_the_bits_of_a_prompt(desk: Desk) -> None:
    prompt, newcomer = await desk.lanes(2)
    desk.executor.bits = 3
    with desk.executor.held() as hold:
        desk.give(prompt, LONG)
        await until(hold.arrived)
        desk.give(newcomer)
    await desk.take_all(newcomer)
    await desk.take_all(prompt)
    assert [what for what, _ in desk.executor.passes()] == [
        "start", "advance", "run", "advance", "advance",
    ]  # fmt: skip


async def test_long_prompts_take_turns_chunk_by_chunk(desk: Desk) -> None:
    long, short = await desk.lanes(2)
    desk.executor.bits = 2
    for _ in range(4):
        desk.give(long, LONG)
    desk.give(short, LONG)
    await asyncio.gather(desk.take_all(long), desk.take_all(short))
    started = [whom for what, whom in desk.executor.calls if what == "start"]
    assert started == [b"00", b"01", b"00", b"00", b"00"]
    advanced = [whom for what, whom in desk.executor.calls if what == "advance"]
    # One at a time: what a pass holds is held once.
    assert advanced == [b"00"] * 2 + [b"01"] * 2 + [b"00"] * 6


async def test_nobody_starves(desk: Desk) -> None:
    running, prompts = (await desk.lanes(8))[:5], [await desk.lane(f"p{n}") for n in range(3)]
    desk.executor.bits = 3

    async def decode(lane: Lane) -> None:
        for _ in range(30):
            desk.give(lane)
            await desk.take_all(lane)

    for lane in prompts:
        for _ in range(3):
            desk.give(lane, LONG)
    await asyncio.gather(*map(decode, running), *map(desk.take_all, prompts))
    kinds = [what for what, _ in desk.executor.passes() if what != "start"]
    bits = 3 * 3 * desk.executor.bits
    assert (kinds.count("run"), kinds.count("advance")) == (30, bits)
    assert alternate(kinds)


# --- bounds ---------------------------------------------------------------------------------


async def test_a_session_whose_outcomes_nobody_takes_rests(desk: Desk) -> None:
    slow, other = await desk.lanes(2)
    for _ in range(6):
        desk.give(slow)
    for _ in range(6):
        desk.give(other)
        await desk.take_all(other)
    assert len(desk.executor.seen[slow.session]) == AHEAD
    await desk.take_all(slow)


async def test_too_many_steps_are_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "MAX_STEPS", 4)
    (lane,) = await desk.lanes(1)
    for _ in range(4):
        desk.give(lane)
    with pytest.raises(Refused, match="too many rows wait"):
        desk.give(lane)


# --- everything at once ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_64_sessions_that_come_and_go_all_get_what_is_theirs(desk: Desk, seed: int) -> None:
    rng = random.Random(seed)
    desk.executor.bits = 2
    lanes = await desk.lanes(64)
    ended = set(rng.sample(lanes, 16))

    async def live(lane: Lane, turns: int, last: int) -> None:
        for turn in range(turns):
            rows = rng.choice((1, 1, 1, SHORT_ROWS, SHORT_ROWS + 1, LONG))
            for _ in range(rng.choice((1, 1, 3))):
                desk.give(lane, rows)
            if lane in ended and turn == last:
                desk.scheduler.close(lane)
                return
            await desk.take_all(lane)

    await asyncio.gather(*(live(lane, 12, rng.randrange(12)) for lane in lanes))
    await desk.idle()
    for lane in lanes:
        if lane not in ended:
            assert desk.executor.seen[lane.session] == desk.given[lane]
    assert set(desk.executor.seen) == {lane.session for lane in lanes if lane not in ended}
    assert max(map(len, desk.executor.short_passes())) > 8


# --- where passes run -----------------------------------------------------------------------


async def where(desk: Desk, lane: Lane, passes: int) -> list[bool]:
    """Of some short passes: whether the event loop ran them."""
    desk.compute.in_loop = True
    here, seen = threading.get_ident(), []
    run = desk.executor.run

    def noted(steps: Sequence[StageStep]) -> object:
        seen.append(threading.get_ident() == here)
        return run(steps)

    desk.executor.run = noted
    for _ in range(passes):
        desk.give(lane)
        await desk.take(lane)
    desk.executor.run = run
    return seen


async def test_passes_known_to_be_brief_run_in_the_event_loop(desk: Desk) -> None:
    desk.executor.short_s = BRIEF_S
    (lane,) = await desk.lanes(1)
    assert await where(desk, lane, REMEMBERED + 2) == [False] * REMEMBERED + [True] * 2
    desk.executor.short_s = BRIEF_S * 1.1
    assert await where(desk, lane, REMEMBERED) == [True] + [False] * (REMEMBERED - 1)
    desk.executor.short_s = BRIEF_S
    assert await where(desk, lane, REMEMBERED + 1) == [False] * REMEMBERED + [True]


async def test_more_rows_than_the_brief_passes_had_are_not_taken_for_brief(desk: Desk) -> None:
    desk.executor.short_s = BRIEF_S / 2
    lanes = await desk.lanes(3)
    await where(desk, lanes[0], REMEMBERED)
    with desk.executor.held() as hold:
        for lane in lanes:
            desk.give(lane)
        # If it ran in the event loop, this would never be seen.
        await until(hold.arrived)
    for lane in lanes:
        await desk.take(lane)


async def test_rows_far_behind_in_a_text_are_not_taken_for_brief(desk: Desk) -> None:
    desk.executor.short_s = BRIEF_S / 2
    near, far = await desk.lanes(2)
    await where(desk, near, REMEMBERED)
    desk.given[far] = [0] * (2 * ALIKE)
    with desk.executor.held() as hold:
        desk.give(far)
        await until(hold.arrived)
    desk.scheduler.close(far)
