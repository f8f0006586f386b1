from __future__ import annotations

import time

from diffuse_core.adapters.system_clock import SystemClock


def test_the_clocks_run() -> None:
    clock = SystemClock()
    assert abs(clock.wall() - time.time()) < 5
    first = clock.monotonic()
    assert clock.monotonic() >= first
