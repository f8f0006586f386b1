"""A process that does nothing but find out how late it is: what the machine does to everybody.

Where it is late, others are late for the same reason: all cores are taken, or all is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.services.loop_lag import LoopLag
from tests.chaos.judge import lag_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[2]
TELL_S = 1.0


class Bystander:
    """What it told once a second: seconds of lateness over its last minute, and the load."""

    def __init__(self) -> None:
        self.p99: list[tuple[float, float]] = []
        self.worst: list[tuple[float, float]] = []
        self.load: list[tuple[float, float]] = []
        """How many processes want each core."""

    async def listen(self, lines: asyncio.StreamReader) -> None:
        """Take what it tells until it ends."""
        async for line in lines:
            told = zip((self.p99, self.worst, self.load), json.loads(line), strict=True)
            for where, value in told:
                where.append((time.time(), value))

    def limit_at(self, moment: float) -> float:
        """How late nodes may be in the minute before `moment` (see `judge.lag_limit`)."""
        return lag_limit(_most(self.p99, moment), _most(self.load, moment))


def _most(told: list[tuple[float, float]], moment: float) -> float:
    return max((value for at, value in told if moment - 60 <= at <= moment + 2), default=0.0)


@contextlib.asynccontextmanager
async def bystander() -> AsyncIterator[Bystander]:
    """Start one; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.bystander",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    one = Bystander()
    listening = asyncio.create_task(one.listen(process.stdout))
    try:
        yield one
    finally:
        process.stdin.close()
        await process.wait()
        await listening


async def stand_by() -> None:
    """Tell once a second, until standard input ends."""
    lag = LoopLag()
    lag.start()
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    ended = asyncio.create_task(lines.read())
    while not (await asyncio.wait([ended], timeout=TELL_S))[0]:
        late = lag.lags()
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        sys.stdout.write(json.dumps([late.p99_s, late.max_s, load]) + "\n")
        sys.stdout.flush()
    lag.stop()


if __name__ == "__main__":
    asyncio.run(stand_by())
