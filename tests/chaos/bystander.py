"""A process that does nothing but find out how late it is: what the machine does to everybody.

Where it is late, others are late for the same reason: all cores are taken, or all is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.services.loop_lag import LoopLag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[2]
TELL_S = 1.0


class Bystander:
    """What it told: seconds of lateness over its last minute, once a second."""

    def __init__(self) -> None:
        self.p99: list[tuple[float, float]] = []
        self.worst: list[tuple[float, float]] = []

    async def listen(self, lines: asyncio.StreamReader) -> None:
        """Take what it tells until it ends."""
        async for line in lines:
            p99, worst = json.loads(line)
            self.p99.append((time.time(), p99))
            self.worst.append((time.time(), worst))

    def p99_around(self, moment: float) -> float:
        """The largest 99th percentile that it told from a minute before `moment` on."""
        return max((late for at, late in self.p99 if moment - 60 <= at <= moment + 2), default=0.0)


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
        sys.stdout.write(json.dumps([late.p99_s, late.max_s]) + "\n")
        sys.stdout.flush()
    lag.stop()


if __name__ == "__main__":
    asyncio.run(stand_by())
