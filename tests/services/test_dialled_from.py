"""Where a sentinel's dial came from is part of what its answer is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import reachability as rules
from diffuse_core.domain.reachability import DialBacks, ip_of
from diffuse_core.services import reachability
from tests.services.reached import LOOPBACK, Reached, Walled
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack


@pytest.mark.parametrize("walled", [False, True])
async def test_the_address_that_it_came_from_goes_with_the_answer(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, walled: bool
) -> None:
    monkeypatch.setattr(reachability, "LOOK_S", 0.02)
    monkeypatch.setattr(rules, "FIRST_S", 0.02)
    told: list[tuple[bool, str]] = []
    real = DialBacks.answered

    def answered(self: DialBacks, *args: object, met: bool, came_from: str, **more: float) -> None:
        told.append((met, came_from))
        real(self, *args, met=met, came_from=came_from, **more)

    monkeypatch.setattr(DialBacks, "answered", answered)
    town = Reached(stack)
    await town.sentinel()
    if walled:
        await town.start(kind=Walled)
        await until(lambda: told)
        assert told == [(False, "")]
    else:
        await town.start()
        await until(lambda: told)
        ((met, came_from),) = told
        assert met
        assert str(ip_of(came_from)) == LOOPBACK
