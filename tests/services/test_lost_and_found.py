"""How losses are found, what is waited for, and what is left behind: nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.messages import ForwardHidden, ForwardTokens
from diffuse_core.domain.view import Healed, Waiting
from diffuse_core.errors import StagesLost
from diffuse_core.services import progress, stage, stage_run
from tests.services.stage_net import StageNet, in_thirds, read_all
from tests.services.tiny_model import ids
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.services.generation import Generation
    from tests.services.stage_net import StageHost
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("soon_noticed")

PROMPT = ids(12, 4)
COUNT = 60
GREEDY = SamplingParams()
STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])


async def begun(
    stack: AsyncExitStack, tiny: TinyModel, replicas: int
) -> tuple[StageNet, Generation]:
    """A network, and an answer of it whose session is open."""
    net = await in_thirds(stack, tiny, replicas)
    asked = net.generation(PROMPT, COUNT, GREEDY)
    await asked.open()
    return net, asked


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages soon free the Session of a client that says nothing."""
    monkeypatch.setattr(stage_run, "SILENT_S", 0.4)
    monkeypatch.setattr(stage, "SWEEP_S", 0.05)


def mute(host: StageHost) -> None:
    """It answers whoever asks, and does nothing with rows any more."""
    host.links.unhandle(ForwardHidden, ForwardTokens)


@STAGES
@pytest.mark.slow
async def test_a_stage_that_answers_and_does_nothing_is_replaced(
    stack: AsyncExitStack, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    monkeypatch.setattr(progress, "STUCK_S", 0.5)
    monkeypatch.setattr(progress, "STUCK_PER_ROW_S", 0.0)
    net, asked = await begun(stack, tiny, 2)
    victim = net.on(asked, index)
    tokens, (told,) = await read_all(asked, COUNT, {5: lambda: mute(victim)})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert told.lost.node == victim.id.hex()
    assert told.why == "it answers, but makes no progress"
    await asked.close()
    await net.idle()


@STAGES
async def test_a_lost_link_between_stages_costs_no_row(
    stack: AsyncExitStack, tiny: TinyModel, index: int
) -> None:
    """Both are there still: they meet again, and nothing is computed twice."""
    net, asked = await begun(stack, tiny, 1)
    one, other = net.on(asked, index), net.on(asked, (index + 1) % 3)

    def cut() -> None:
        net.memory.cut(one.id, other.id)
        net.memory.heal(one.id, other.id)

    tokens, (told,) = await read_all(asked, COUNT, {5: cut})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert told.lost.node in (one.id.hex(), other.id.hex())
    assert [step.node for step in told.replaced_by] == [told.lost.node]
    for host in net.hosts:
        assert set(host.executor.rows.values()) == {1}
    await asked.close()
    await net.idle()


@STAGES
async def test_a_lost_link_to_the_client_costs_no_row(
    stack: AsyncExitStack, tiny: TinyModel, index: int
) -> None:
    """Also tokens that were lost with it are told again."""
    net, asked = await begun(stack, tiny, 1)

    def cut() -> None:
        for channel in tuple(net.memory._channels):
            if channel.remote == net.on(asked, index).id and channel.owner == net.id:
                channel.break_off()

    tokens, healed = await read_all(asked, COUNT, {5: cut})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert len(healed) == 1
    for host in net.hosts:
        assert set(host.executor.rows.values()) == {1}
    await asked.close()
    await net.idle()


async def test_whoever_comes_within_the_grace_takes_the_place(
    stack: AsyncExitStack, tiny: TinyModel
) -> None:
    net, asked = await begun(stack, tiny, 1)
    victim = net.on(asked, 1)
    waits: list[Waiting] = []
    reading = asyncio.create_task(read_all(asked, COUNT, {5: victim.kill}, waits))
    await until(lambda: waits)
    late = await net.host(4, 7)
    tokens, (told,) = await reading
    # It is said once, whoever comes and however long it takes.
    (waiting,) = waits
    assert (waiting.lost.node, waiting.seconds) == (victim.id.hex(), 5.0)
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert [step.node for step in told.replaced_by] == [late.id.hex()]
    assert told.seconds > 0
    assert told.route == asked.route
    await asked.close()
    await net.idle()


async def test_hosts_of_other_slices_fill_the_gap(stack: AsyncExitStack, tiny: TinyModel) -> None:
    """Two hosts in the place of one; those that stay keep what they have."""
    net, asked = await begun(stack, tiny, 1)
    victim, first, last = net.on(asked, 1), net.on(asked, 0), net.on(asked, 2)
    for start, end in ((2, 6), (5, 10)):
        await net.host(start, end)
    tokens, (told,) = await read_all(asked, COUNT, {5: victim.kill})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert len(told.replaced_by) == 2
    assert {first.id.hex(), last.id.hex()} <= {step.node for step in told.route}
    assert set(first.executor.rows.values()) == set(last.executor.rows.values()) == {1}
    await asked.close()
    await net.idle()


async def test_a_whole_new_route_where_one_that_stays_is_needed_elsewhere(
    stack: AsyncExitStack, tiny: TinyModel
) -> None:
    net = StageNet(stack, tiny)
    whole, half = await net.host(0, 10), await net.host(5, 10)
    asked = net.generation(PROMPT, COUNT, GREEDY)
    route = asked._choice.choose

    def halves(*given: object, **more: object) -> object:
        hops = route(*given, **more)
        if half.alive and len(hops) == 1:
            parts = [(whole, 0, 5), (half, 5, 10)]
            return [type(hops[0])(h.id, (h.address,), type(h.part)(a, b)) for h, a, b in parts]
        return hops

    asked._choice.choose = halves
    await asked.open()
    assert len(asked.route) == 2
    tokens, (told,) = await read_all(asked, COUNT, {5: half.kill})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert [step.node for step in told.route] == [whole.id.hex()]
    await asked.close()
    await net.idle()


async def test_nobody_comes(stack: AsyncExitStack, tiny: TinyModel) -> None:
    """The error names the range; what happened is told; and nothing is left."""
    net = await in_thirds(stack, tiny, 1)
    asked = net.generation(PROMPT, COUNT, GREEDY, grace_s=0.3)
    await asked.open()
    victim = net.on(asked, 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StagesLost, match=r"no host that answers holds layers 4:7 of 10\. Tokens"):
        await read_all(asked, COUNT, {5: victim.kill})
    assert loop.time() - began > 0.3
    (event,) = asked.events
    assert event.startswith(f"stage {victim.id.hex()[:8]} (layers 4:7) was lost (")
    assert len(asked.route) == 3
    await asked.close()
    await net.idle()


@pytest.mark.usefixtures("_forgetful")
@pytest.mark.slow
async def test_watching_goes_on_while_nobody_reads(stack: AsyncExitStack, tiny: TinyModel) -> None:
    """Stages would free the Session of a client that says nothing; and the ring rests."""
    net, asked = await begun(stack, tiny, 1)
    assert not isinstance(await asked.next(), Healed)
    await asyncio.sleep(1.0)
    assert [host.stage.sessions for host in net.hosts] == [1, 1, 1]
    await asked.close()
    await net.idle()


@pytest.mark.usefixtures("_forgetful")
async def test_a_client_that_freezes_is_forgotten(stack: AsyncExitStack, tiny: TinyModel) -> None:
    net, asked = await begun(stack, tiny, 1)
    await asked.next()
    asked._run._roll.stop()
    await net.idle()
    for host in net.hosts:
        await host.compute.run(lambda: None)
        assert not host.executor._sessions
    net.desk.remove(asked._run)


async def test_what_a_loss_cost_is_told_before_the_next_token(
    stack: AsyncExitStack, tiny: TinyModel
) -> None:
    """And after all tokens that came before it."""
    net, asked = await begun(stack, tiny, 2)
    victim = net.on(asked, 2)
    kinds: list[str] = []
    tokens = 0
    log = asked._answer
    while tokens < COUNT:
        event = await asked.next()
        if isinstance(event, Healed):
            kinds.append("healed")
            continue
        tokens += len(event.tokens)
        kinds.append("tokens")
        if tokens == 3:
            # All that may come ahead is there when it dies.
            await until(lambda: len(log.drawn) + asked._run._answers.qsize() == 8)
            victim.kill()
    assert kinds.index("healed") == 8
    await asked.close()
    await net.idle()
