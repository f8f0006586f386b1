"""A Stage whose hidden states have another size than they had: another takes its place."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from diffuse_core.domain.decoding import SamplingParams
from tests.services.stage_net import StageNet, read_all
from tests.services.tiny_model import ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from diffuse_core.model_ports import StageResult, StageStep
    from tests.services.tiny_model import TinyModel

PROMPT, COUNT, FROM = 30, 40, 45


@pytest.fixture
async def net(tiny: TinyModel) -> AsyncIterator[StageNet]:
    async with AsyncExitStack() as stack:
        net = StageNet(stack, tiny)
        for start, end in ((0, 3), (0, 3), (3, 6), (3, 6), (6, 10), (6, 10)):
            await net.host(start, end)
        yield net


def scaled(factor: float) -> Callable[[StageStep, StageResult], StageResult]:
    def spoil(step: StageStep, found: StageResult) -> StageResult:
        if found.hidden is None or step.position < FROM:
            return found
        numbers = np.frombuffer(found.hidden.data, np.float32) * np.float32(factor)
        hidden = msgspec.structs.replace(found.hidden, data=numbers.tobytes())
        return msgspec.structs.replace(found, hidden=hidden)

    return spoil


@pytest.mark.parametrize("factor", [0.0, 1e-12, 1e3, 1e12])
@pytest.mark.parametrize("index", [0, 1])
async def test_a_stage_that_gives_rows_of_another_size_is_replaced(
    net: StageNet, tiny: TinyModel, index: int, factor: float
) -> None:
    generation = net.generation(ids(PROMPT), COUNT, SamplingParams())
    await generation.open()
    wrong = net.on(generation, index)
    wrong.executor.spoil = scaled(factor)
    tokens, healed = await read_all(generation, COUNT)
    await generation.close()
    assert tuple(tokens) == tiny.says(ids(PROMPT), COUNT, ignore_eos=True)
    assert [one.lost.node for one in healed] == [wrong.id.hex()]
    assert "the stage before is at fault" in healed[0].why
    await net.idle()


async def test_honest_stages_are_left_alone(net: StageNet, tiny: TinyModel) -> None:
    for salt in range(4):
        generation = net.generation(ids(PROMPT, salt), COUNT, SamplingParams(), speculate=True)
        await generation.open()
        tokens, healed = await read_all(generation, COUNT)
        await generation.close()
        assert tuple(tokens) == tiny.says(ids(PROMPT, salt), COUNT, ignore_eos=True)
        assert healed == []
