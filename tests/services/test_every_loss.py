"""Every Stage, lost in every way at every moment, met directly and through sentinels.

The answer is the undisturbed one, the loss is told, only the lost Stage computes again, and it is
found out and mended in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.services import striking
from tests.services.striking import FAULTS, GOALS_S, IN_ANSWER, IN_PROMPT, Answer, survives

if TYPE_CHECKING:
    from tests.services.stage_net import StageNet
    from tests.services.striking import Fault
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])
RELAYED = pytest.param(2, marks=pytest.mark.slow, id="relayed")
"""A second all in all, each of them; together they are many."""
WAYS = pytest.mark.parametrize("sentinels", [pytest.param(0, id="direct"), RELAYED])
FAULT = pytest.mark.parametrize("fault", FAULTS)
MOMENTS = pytest.mark.parametrize("row", [IN_PROMPT, IN_ANSWER], ids=["prompt", "answer"])


@WAYS
@MOMENTS
@STAGES
@FAULT
def test_a_stage_is_lost(
    tiny: TinyModel, fault: Fault, index: int, row: int, sentinels: int
) -> None:
    async def begin(net: StageNet) -> Answer:
        await striking.hosts(net, sentinels=sentinels)
        answer = Answer(net)
        await answer.open()
        victim = answer.on(index)
        answer.at_row(victim, row, (victim, fault))
        return answer

    survives(tiny, begin, GOALS_S[fault])


@WAYS
@STAGES
@FAULT
def test_its_replacement_is_lost_in_the_replay(
    tiny: TinyModel, fault: Fault, index: int, sentinels: int
) -> None:
    async def begin(net: StageNet) -> Answer:
        counts = [3 if place == index else 2 for place in range(3)]
        await striking.hosts(net, counts, sentinels)
        answer = Answer(net)
        await answer.open()
        victim = answer.on(index)
        answer.at_row(victim, IN_ANSWER, (victim, "killed"))
        answer.in_replay(victim, fault)
        return answer

    survives(tiny, begin, GOALS_S[fault])
