"""Stages are lost while tokens are guessed ahead: what was guessed changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from tests.services import striking
from tests.services.scripted_time import played
from tests.services.striking import GOALS_S, PROMPT, SOME_FAULTS, Answer, undisturbed

if TYPE_CHECKING:
    from tests.services.stage_net import StageNet
    from tests.services.striking import Fault
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

TWO_WORDS = SamplingParams(temperature=0.0, logit_bias=((12, 100.0), (23, 100.0)))
"""Such an answer repeats itself, so that there is something to guess."""
EARLY = len(PROMPT) + 12


@pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_a_stage_is_lost(tiny: TinyModel, fault: Fault, index: int) -> None:
    wanted = undisturbed(tiny, TWO_WORDS)

    async def act(net: StageNet) -> None:
        await striking.hosts(net)
        answer = Answer(net, TWO_WORDS, speculate=True)
        await answer.open()
        victim = answer.on(index)
        answer.at_row(victim, EARLY, (victim, fault))
        await answer.read()
        assert answer.tokens == wanted
        answer.told()
        assert answer.on(2).executor.guessed, "nothing was guessed since"
        assert answer.stall() <= GOALS_S[fault]
        for stage in range(3):
            counted = answer.on(stage).executor.rows
            assert all(counted[row] == 1 for row in range(len(PROMPT))), stage
        await answer.end()

    played(tiny, act)
