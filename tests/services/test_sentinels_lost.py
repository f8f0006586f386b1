"""The sentinel that carries an answer is lost, alone or with a stage: the answer goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.services import striking
from tests.services.scripted_time import now, played
from tests.services.stage_sentinels import RelayedHost
from tests.services.striking import (
    COUNT,
    IN_ANSWER,
    IN_PROMPT,
    PARTS,
    PROMPT,
    Answer,
    undisturbed,
)

if TYPE_CHECKING:
    from tests.services.stage_net import StageHost, StageNet
    from tests.services.stage_sentinels import StageSentinel
    from tests.services.striking import Fault
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")

MOMENTS = pytest.mark.parametrize("row", [IN_PROMPT, IN_ANSWER], ids=["prompt", "answer"])
STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])


def carriers(answer: Answer, sentinels: list[StageSentinel]) -> list[StageSentinel]:
    """Those through which the client's links to the Stages go."""
    assert answer.asked.run is not None
    through = {link.relayed_through for link in answer.asked.run.links}
    return [one for one in sentinels if one.id in through]


def once(answer: Answer) -> None:
    """Each host that holds a Stage computed every row, and none twice."""
    rows = set(range(len(PROMPT) + COUNT - 1))
    for index in range(len(PARTS)):
        counted = answer.on(index).executor.rows
        assert (set(counted), set(counted.values())) == (rows, {1}), index


@pytest.mark.parametrize(("how", "goal_s"), [("killed", 2.0), ("frozen", 7.0)])
@MOMENTS
def test_the_same_hosts_go_on_through_another(
    tiny: TinyModel, row: int, how: str, goal_s: float
) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        sentinels = await striking.hosts(net, (1, 1, 1), sentinels=2)
        answer = Answer(net)
        await answer.open()
        before = [answer.on(index) for index in range(3)]
        struck: list[float] = []

        def strike() -> None:
            struck.append(now())
            for one in carriers(answer, sentinels)[:1]:
                one.kill() if how == "killed" else one.freeze()

        before[0].executor.at_row[row] = before[0].soon(strike)
        await answer.read()
        assert answer.tokens == wanted
        assert struck
        assert answer.healed
        assert [answer.on(index) for index in range(3)] == before
        assert {step.via for step in answer.asked.route} == {"relay"}
        once(answer)
        assert answer.longest(since=struck[0]) <= goal_s
        await answer.end()

    played(tiny, act)


@pytest.mark.parametrize("fault", ["killed", "frozen"])
@MOMENTS
@STAGES
def test_a_stage_is_lost_with_the_sentinel(
    tiny: TinyModel, index: int, row: int, fault: Fault
) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        sentinels = await striking.hosts(net, sentinels=2)
        answer = Answer(net)
        await answer.open()
        victim = answer.on(index)
        answer.at_row(victim, row, (victim, fault))
        victim.executor.at_row[row + 1] = victim.soon(carriers(answer, sentinels)[0].kill)
        await answer.read()
        assert answer.tokens == wanted
        assert victim.id.hex() in {one.lost.node for one in answer.healed}
        assert victim not in [answer.on(index) for index in range(3)]
        once(answer)
        assert answer.stall() <= 5.0
        await answer.end()

    played(tiny, act)


class MetBothWays(RelayedHost):
    """It says that it is met directly as well."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address, *super().addresses)

    async def start(self) -> None:
        for other in self.net.nodes - {self.id} - {one.id for one in self._sentinels}:
            self.net.memory.cut(self.id, other)
        await super().start()


def met_by_all(net: StageNet, hosts: list[StageHost]) -> None:
    for one in hosts:
        for other in net.nodes - {one.id}:
            net.memory.heal(one.id, other)


def test_the_same_hosts_go_on_directly(tiny: TinyModel) -> None:
    """The only sentinel dies when they are met without it, too."""
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        sentinels = await striking.hosts(net, (0, 0, 0), sentinels=1)
        for part in PARTS:
            await net.host(*part, lambda net, part: MetBothWays(net, part, sentinels))
        answer = Answer(net)
        await answer.open()
        assert {step.via for step in answer.asked.route} == {"relay"}

        def strike() -> None:
            met_by_all(net, net.hosts)
            sentinels[0].kill()

        net.hosts[1].executor.at_row[IN_ANSWER] = net.hosts[1].soon(strike)
        await answer.read()
        assert answer.tokens == wanted
        assert answer.healed
        assert {step.via for step in answer.asked.route} == {"direct"}
        once(answer)
        await answer.end()

    played(tiny, act)
