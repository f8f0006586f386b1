"""A look at a large network is refreshed less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.errors import Unreachable
from diffuse_core.services.kept_network import RETRY_S, KeptNetwork, Times
from tests.services.test_discovery import Net

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.services.observer import Observer

WAIT_S = 0.01


class Later(SystemClock):
    """The time, and as much later as a test says."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Pulls:
    """What takes the place of an observer's pulls: counts them, and succeeds where it is to."""

    def __init__(self, observer: Observer, clock: Later) -> None:
        self._observer = observer
        self._clock = clock
        self.count = 0
        self.works = True

    async def __call__(self) -> None:
        self.count += 1
        if self.works:
            self._observer._pulled_at = self._clock.monotonic()


@pytest.mark.parametrize(("pace", "good_for"), [(1e9, 3.0), (50.0, None), (1.0, 30.0)])
async def test_a_picture_is_good_for_as_long_as_it_takes_at_a_pace(
    stack: AsyncExitStack, pace: float, good_for: float | None
) -> None:
    net = Net(stack)
    await net.node(1)
    made: list[Observer] = []

    async def find() -> Observer:
        if made:
            raise Unreachable("all are gone")
        made.append(net.observer(100))
        await made[0].look(["mem:1"])
        return made[0]

    clock, times = Later(), Times(bytes_per_s=pace, wait=WAIT_S)
    kept = KeptNetwork(find, lambda _: None, clock, times)  # type: ignore[arg-type,return-value]
    stack.push_async_callback(kept.close)
    assert await kept._look_around()
    assert 200 < made[0].pulled_bytes < 1400
    good_for = good_for or made[0].pulled_bytes / pace
    assert 3.0 <= good_for <= 30.0
    made[0].look_again = pulls = Pulls(made[0], clock)  # type: ignore[method-assign]

    clock.ahead += good_for - 0.5
    await kept.view()
    assert pulls.count == 0
    clock.ahead += 1.0
    await kept.view()
    assert pulls.count == 1

    pulls.works = False
    clock.ahead += good_for + times.lost - times.fresh - 0.5
    await kept.view()
    assert (pulls.count, kept.trouble) == (2, "")
    clock.ahead += RETRY_S
    with pytest.raises(Unreachable):
        await kept.view()
