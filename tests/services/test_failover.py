"""Every Stage of three is lost while others compute in threads: the answer is the undisturbed one.

And only the lost Stage computes anything again: each host that lives computes each row once. All
ways and moments are in `test_every_loss`, in virtual time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.messages import OpenSession
from diffuse_core.services import roll_call, run, session_terms, stage_run
from tests.services.stage_net import StageNet, read_all, refusing, with_nan
from tests.services.tiny_model import ids

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.services.generation import Generation
    from tests.services.stage_net import StageHost
    from tests.services.tiny_model import TinyModel

PROMPT = ids(45, 3)
COUNT = 30
EARLY = 9
PARTS = ((0, 4), (4, 7), (7, 10))
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.2, top_p=0.95, seed=7, presence_penalty=0.4)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
STAGES = pytest.mark.parametrize("index", [0, 1, 2], ids=["first", "middle", "last"])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several pieces and messages, a ring that soon waits, a watch that soon ends."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 16)
    monkeypatch.setattr(session_terms, "MAX_ROWS", 16)
    monkeypatch.setattr(run, "CREDITS", 8)
    monkeypatch.setattr(roll_call, "WATCH_S", 0.1)


@pytest.fixture
async def net(stack: AsyncExitStack, tiny: TinyModel) -> StageNet:
    """Two hosts for each third."""
    made = StageNet(stack, tiny)
    for start, end in PARTS * 2:
        await made.host(start, end)
    return made


async def undisturbed(net: StageNet, sampling: SamplingParams) -> list[int]:
    """What is said when nothing happens. Hosts count from then on."""
    generation = net.generation(PROMPT, COUNT, sampling)
    await generation.open()
    tokens, healed = await read_all(generation, COUNT)
    await generation.close()
    assert not healed
    if sampling is GREEDY:
        assert tuple(tokens) == net.tiny.says(PROMPT, COUNT, ignore_eos=True)
    await net.idle()
    for host in net.hosts:
        host.executor.rows.clear()
    return tokens


def each_row_once(net: StageNet, generation: Generation) -> None:
    """Assert that every Stage of the Route computed each row, and none of them twice."""
    rows = range(len(PROMPT) + COUNT - 1)
    for index in range(len(PARTS)):
        counted = net.on(generation, index).executor.rows
        assert set(counted.values()) == {1}, (index, counted)
        assert set(rows) <= set(counted), (index, counted)


async def survives(
    net: StageNet, sampling: SamplingParams, index: int, act: str, row: int
) -> None:
    """Have a Stage fail at a row; all must be well."""
    wanted = await undisturbed(net, sampling)
    generation = net.generation(PROMPT, COUNT, sampling)
    await generation.open()
    victim = net.on(generation, index)
    break_at(victim, act, row)
    async with asyncio.timeout(20):
        tokens, healed = await read_all(generation, COUNT)
    assert tokens == wanted
    (told,) = healed
    assert told.lost.node == victim.id.hex()
    assert [step.node for step in told.replaced_by] == [net.on(generation, index).id.hex()]
    assert victim is not net.on(generation, index)
    each_row_once(net, generation)
    (event,) = generation.events
    assert event.startswith(f"stage {victim.id.hex()[:8]} (layers {victim.part}) was lost (")
    await generation.close()
    await net.idle()


def break_at(victim: StageHost, act: str, row: int) -> None:
    """Let a host fail once it computed a row of that position."""
    executor = victim.executor

    def spoil() -> None:
        executor.spoil = with_nan if act == "nan" else refusing

    executor.at_row[row] = victim.soon(victim.kill) if act == "dies" else spoil


@STAGES
@pytest.mark.parametrize("act", ["dies", "nan", "refuses"])
async def test_a_stage_is_lost_while_tokens_are_drawn(net: StageNet, index: int, act: str) -> None:
    await survives(net, SAMPLED, index, act, len(PROMPT) + EARLY)


@STAGES
async def test_a_stage_dies_while_the_session_is_opened(net: StageNet, index: int) -> None:
    wanted = await undisturbed(net, GREEDY)
    generation = net.generation(PROMPT, COUNT, GREEDY)
    doomed = [host for host in net.hosts if (host.part.start, host.part.end) == PARTS[index]]
    killed = []

    def dies(host: StageHost) -> None:
        async def die(*_: object) -> None:
            if not killed:
                killed.append(host)
                host.kill()

        plain = host.links._handlers[OpenSession]
        host.links.handle(OpenSession, lambda *given: plain(*given) if killed else die(*given))

    for host in doomed:
        dies(host)
    await generation.open()
    tokens, healed = await read_all(generation, COUNT)
    assert tokens == wanted
    assert not healed
    (event,) = generation.events
    assert f"stage {killed[0].id.hex()[:8]}" in event
    each_row_once(net, generation)
    await generation.close()
    await net.idle()


@STAGES
async def test_one_replica_after_another_is_lost(net: StageNet, index: int) -> None:
    for _ in range(2):
        await net.host(*PARTS[index])
    wanted = await undisturbed(net, GREEDY)
    generation = net.generation(PROMPT, COUNT, GREEDY)
    await generation.open()
    victims = []

    def lose() -> None:
        victims.append(net.on(generation, index))
        victims[-1].kill()

    tokens, healed = await read_all(generation, COUNT, {3: lose, 12: lose, 21: lose})
    assert tokens == wanted
    assert len(healed) == len(generation.events) == 3
    each_row_once(net, generation)
    await generation.close()
    await net.idle()


@STAGES
async def test_links_to_one_that_was_replaced_end_late(net: StageNet, index: int) -> None:
    """Nobody needs them any more, and nobody is accused because of them."""
    wanted = await undisturbed(net, GREEDY)
    generation = net.generation(PROMPT, COUNT, GREEDY)
    await generation.open()
    victim = net.on(generation, index)
    break_at(victim, "refuses", len(PROMPT) + EARLY)
    for host in net.hosts:
        if host.part == victim.part and host is not victim:
            # What it computes again was sent nowhere yet.
            host.executor.at_row[20] = host.soon(victim.kill)
    tokens, healed = await read_all(generation, COUNT)
    assert tokens == wanted
    assert [told.lost.node for told in healed] == [victim.id.hex()]
    each_row_once(net, generation)
    await generation.close()
    await net.idle()
