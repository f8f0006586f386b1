"""Only a way between two nodes is lost: both live, and others reach both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.services import striking
from tests.services.scripted_time import now, played
from tests.services.stage_net import swallow
from tests.services.striking import IN_ANSWER, IN_PROMPT, PROMPT, Answer, undisturbed

if TYPE_CHECKING:
    from tests.services.stage_net import StageHost, StageNet
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

GOAL_S = 8.0
"""To find out takes 4 s, and to see that they do not meet again 3 s."""
MOMENTS = pytest.mark.parametrize("row", [IN_PROMPT, IN_ANSWER], ids=["prompt", "answer"])
STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])


def fall_silent(one: StageHost, other: StageHost) -> None:
    """Nothing that one of them sends gets to the other, now or over another link."""
    for near, far in ((one, other), (other, one)):
        for link in near.links.linked().get(far.id, ()):
            link.send = swallow
        near.transport.base.unheard.add(far.address)


def fallen_out(answer: Answer, pair: tuple[StageHost, StageHost]) -> bool:
    """Whether one of two was replaced, and the rest computed nothing again."""
    stayed = [host for host in pair if host in map(answer.on, range(3))]
    for index in range(3):
        counted = answer.on(index).executor.rows
        assert set(counted.values()) == {1}, (index, counted)
    return len(stayed) == 1


@MOMENTS
@STAGES
def test_nothing_passes_between_two_stages(tiny: TinyModel, index: int, row: int) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        one, other = answer.on(index), answer.on((index + 1) % 3)
        struck: list[float] = []

        def strike() -> None:
            struck.append(now())
            fall_silent(one, other)

        one.executor.at_row[row] = one.soon(strike)
        await answer.read()
        assert answer.tokens == wanted
        assert answer.healed
        assert answer.longest(since=struck[0]) <= GOAL_S, answer.asked.events
        assert fallen_out(answer, (one, other))
        await answer.end()

    played(tiny, act)


@MOMENTS
def test_the_last_stage_is_heard_by_the_ring_and_not_by_the_client(
    tiny: TinyModel, row: int
) -> None:
    """The others have rows of tokens that the client never saw: those are computed again."""
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        victim = answer.on(2)

        def mute() -> None:
            for link in victim.links.linked()[net.id]:
                link.send = swallow

        victim.executor.at_row[row] = victim.soon(mute)
        await answer.read()
        assert answer.tokens == wanted
        assert [one.lost.node for one in answer.healed] == [victim.id.hex()]
        for index in (0, 1):
            rows = answer.on(index).executor.rows
            again = [one for one, times in rows.items() if times > 1]
            assert again
            assert min(again) >= max(row, len(PROMPT) - 1)
        await answer.end()

    played(tiny, act)
