"""Plays what happens to a StageNet in virtual time: hours of silence take no time.

What is computed takes 2 ms a pass, what is sent arrives at once. So a stall is what it took to
find out that a stage was lost, and to find another.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.fuzz.pretend_executor import PretendCompute
from tests.fuzz.stage import play, settle
from tests.services.stage_net import StageNet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.model_ports import Executor
    from tests.fuzz.virtual_loop import VirtualClock
    from tests.services.tiny_model import TinyModel

AFTERWARDS_S = 60.0

_spare: dict[object, Executor] = {}


class InTurn(PretendCompute):
    """Computes in the loop, in order of arrival."""

    def close(self) -> None:
        """Nothing is to be ended."""


def played(tiny: TinyModel, act: Callable[[StageNet], Awaitable[None]]) -> None:
    """Run `act`; nothing may fail unseen, and nothing may be left running in the end."""

    async def whole(clock: VirtualClock) -> str:
        async with AsyncExitStack() as stack:
            await act(StageNet(stack, tiny, clock, InTurn, _spare))
        await settle(AFTERWARDS_S)
        return ""

    play(whole)


def now() -> float:
    """Seconds since it began."""
    return asyncio.get_running_loop().time()
