"""Two Stages and more are lost at once, or one while another is being replaced."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from tests.services import striking
from tests.services.scripted_time import played
from tests.services.striking import (
    GOALS_S,
    IN_ANSWER,
    IN_PROMPT,
    SOME_FAULTS,
    Answer,
    survives,
    undisturbed,
)

if TYPE_CHECKING:
    from tests.services.stage_net import StageNet
    from tests.services.striking import Fault
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

GROUPS = pytest.mark.parametrize("group", [(0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
MOMENTS = pytest.mark.parametrize("row", [IN_PROMPT, IN_ANSWER], ids=["prompt", "answer"])
FAULT = pytest.mark.parametrize("fault", SOME_FAULTS)
MIXED: tuple[tuple[Fault, Fault], ...] = (
    ("killed", "frozen"),
    ("cut", "frozen"),
    ("nan", "killed"),
    ("refusing", "nan"),
)


@GROUPS
@MOMENTS
@FAULT
def test_at_once(tiny: TinyModel, fault: Fault, row: int, group: tuple[int, ...]) -> None:
    async def begin(net: StageNet) -> Answer:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        victims = [answer.on(index) for index in group]
        answer.at_row(victims[0], row, *((victim, fault) for victim in victims))
        return answer

    survives(tiny, begin, GOALS_S[fault])


@pytest.mark.slow
@GROUPS
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_at_once_behind_sentinels(tiny: TinyModel, fault: Fault, group: tuple[int, ...]) -> None:
    """Eight of them take more than a second."""

    async def begin(net: StageNet) -> Answer:
        await striking.hosts(net, sentinels=2)
        answer = Answer(net)
        await answer.open()
        victims = [answer.on(index) for index in group]
        answer.at_row(victims[0], IN_ANSWER, *((victim, fault) for victim in victims))
        return answer

    survives(tiny, begin, GOALS_S[fault])


@pytest.mark.parametrize("faults", MIXED, ids="-".join)
@pytest.mark.parametrize("pair", list(permutations(range(3), 2)), ids=str)
def test_at_once_in_different_ways(
    tiny: TinyModel, pair: tuple[int, int], faults: tuple[Fault, Fault]
) -> None:
    async def begin(net: StageNet) -> Answer:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        victims = [answer.on(index) for index in pair]
        answer.at_row(victims[1], IN_ANSWER, *zip(victims, faults, strict=True))
        return answer

    survives(tiny, begin, max(GOALS_S[fault] for fault in faults))


@pytest.mark.parametrize("pair", list(permutations(range(3), 2)), ids=str)
@FAULT
def test_one_while_another_is_being_replaced(
    tiny: TinyModel, fault: Fault, pair: tuple[int, int]
) -> None:
    """In the middle of the replay."""

    async def begin(net: StageNet) -> Answer:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        victim = answer.on(pair[0])
        answer.at_row(victim, IN_ANSWER, (victim, "killed"))
        answer.in_replay(victim, fault, pair[1])
        return answer

    survives(tiny, begin, GOALS_S[fault])


def test_one_that_holds_lost_layers_too_takes_another_place(tiny: TinyModel) -> None:
    """The rest stays: it computes nothing again."""
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        for part in ((0, 4), (4, 8), (8, 10)):
            await net.host(*part)
        answer = Answer(net)
        await answer.open()
        first, middle, last = map(answer.on, range(3))
        early, late = await net.host(2, 6), await net.host(6, 10)
        answer.at_row(last, IN_ANSWER, (last, "killed"))
        answer.at_row(first, IN_ANSWER + 10, (middle, "killed"))
        await answer.read()
        assert answer.tokens == wanted
        assert [(step.node, str(step.slice)) for step in answer.asked.route] == [
            (first.id.hex(), "0:4"), (early.id.hex(), "4:6"), (late.id.hex(), "6:10"),
        ]  # fmt: skip
        assert set(first.executor.rows.values()) == {1}
        assert {one.lost.node for one in answer.healed} == {last.id.hex(), middle.id.hex()}
        await answer.end()

    played(tiny, act)
