"""The link proxy as a process of its own, so that it takes nothing of the client's time.

It is told what to do by lines of JSON, and ends with whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tests.bench.link_proxy import LinkProxy
from tests.bench.link_shape import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.bench.link_proxy import State

ROOT = Path(__file__).resolve().parents[2]


class ProxyProcess:
    """What `LinkProxy` does, in a process; see there."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            line = await self._process.stdout.readline()
        assert line, "the link proxy ended"
        return json.loads(line)

    async def open(self, name: str) -> int:
        return int(await self._ask("open", name))

    async def lead(self, name: str, port: int, process: int) -> None:
        await self._ask("lead", name, port, process)

    async def shape(self, one: str, other: str, shape: Shape) -> None:
        await self._ask("shape", one, other, msgspec.to_builtins(shape))

    async def set_state(self, one: str, other: str, state: State) -> None:
        await self._ask("set_state", one, other, state)

    async def counts(self) -> dict[str, int]:
        return dict(await self._ask("counts"))


@contextlib.asynccontextmanager
async def proxy_process(seed: int) -> AsyncIterator[ProxyProcess]:
    """Start one; it ends with the block."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.link_process", str(seed),
        stdin=pipe, stdout=pipe, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        yield ProxyProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def serve(seed: int) -> None:
    """Do what the lines of standard input say, until they end."""
    proxy = LinkProxy(seed)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        what, *given = json.loads(line)
        if what == "shape":
            given[2] = msgspec.convert(given[2], Shape, strict=False)
        done = getattr(proxy, what)(*given)
        answer = await done if asyncio.iscoroutine(done) else done
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await proxy.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
