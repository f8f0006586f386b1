"""How light the app is: idle CPU, what an update costs, how late a key appears. By hand.

    python tests/bench/tui_light.py [--nodes 50 1000] [--seconds 20] [--layers 80] [--size 120x40]

The app runs as a process of its own in a pseudo-terminal, over a made-up node that sends a picture
each second, in which every node's load, rate and age have changed. Printed for each network: CPU
of the process in percent of one core (idle, chat open), how long its event loop was held up by
what it did (a probe that wants to run every 2 ms; the CPU time that went by before it did: p50 of
the longest of each second, and the longest; the longest by the clock, too, which tells more where
the machine is busy with other things), and how long after a key was pressed its letter came out of
the terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import platform
import pty
import random
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.domain.view import FeedUpdate, NetworkView

PROBE_S = 0.002
LETTER = "ж"
"""One that nothing else on the screen has."""


# --- the app's process --------------------------------------------------------------------------


class Busy:
    """A made-up node of a network in which all figures change every second."""

    def __init__(self, nodes: int, layers: int) -> None:
        import tui_literal

        self._view = tui_literal.large(nodes, layers)
        self._telemetry = tui_literal.TELEMETRY
        self._rng = random.Random(1)

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        """A picture each second."""
        from diffuse_core.domain.view import FeedUpdate

        while True:
            yield FeedUpdate(view=self._changed(), telemetry=self._telemetry)
            await asyncio.sleep(1.0)

    def _changed(self) -> NetworkView:
        import msgspec

        def other(node: object) -> object:
            return msgspec.structs.replace(
                node,
                sessions=self._rng.randrange(4),
                tokens_per_s=self._rng.random() * 40,
                last_seen_s=self._rng.random() * 3,
                kv_used=self._rng.randrange(40) << 20,
            )

        view = self._view
        self._view = msgspec.structs.replace(
            view, taken_at=view.taken_at + 1.0, nodes=tuple(map(other, view.nodes))
        )
        # As it comes from the wire: nothing in it is the object of the picture before.
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self._view), type=type(view))

    async def close(self) -> None:
        """Nothing to let go of."""


async def _probe(late: list[tuple[float, float, float]]) -> None:
    """Note when, how late by the clock, and after how much CPU time the loop came round."""
    while True:
        due, spent = time.perf_counter() + PROBE_S, time.thread_time()
        await asyncio.sleep(PROBE_S)
        now = time.perf_counter()
        late.append((now, now - due, time.thread_time() - spent))


def child(nodes: int, layers: int, report: Path, probing: bool) -> None:
    """Run the app until it is told to end; then write how late its loop was."""
    from diffuse_tui.app import DiffuseApp
    from diffuse_tui.launch import SETTLED_S, settle

    late: list[tuple[float, float, float]] = []

    async def attach() -> Busy:
        return Busy(nodes, layers)

    async def run() -> None:
        app = DiffuseApp(attach, open_chat=True)
        asyncio.get_running_loop().call_later(SETTLED_S, settle)
        probe = asyncio.create_task(_probe(late)) if probing else None
        await app.run_async()
        if probe is not None:
            probe.cancel()

    asyncio.run(run())
    report.write_text(json.dumps(late))


# --- what watches it ----------------------------------------------------------------------------


class Watched:
    """The app's process and the other end of its terminal."""

    def __init__(self, size: tuple[int, int], *arguments: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.child = subprocess.Popen(
            [sys.executable, __file__, "--child", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,  # Textual draws there.
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        self.process = psutil.Process(self.child.pid)

    def read(self, seconds: float, until: bytes = b"") -> bytes:
        """What comes within so many seconds; no longer than until `until` was in it."""
        limit, got = time.perf_counter() + seconds, b""
        while (left := limit - time.perf_counter()) > 0 and not (until and until in got):
            if select.select([self.master], [], [], left)[0]:
                got += os.read(self.master, 65536)
        return got

    def key(self) -> float:
        """Seconds from a key to its letter on the terminal."""
        begun = time.perf_counter()
        os.write(self.master, LETTER.encode())
        got = self.read(5.0, LETTER.encode())
        return time.perf_counter() - begun if LETTER.encode() in got else 5.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        """Quit as a user would; however it went, nothing stays."""
        try:
            with contextlib.suppress(OSError):
                os.write(self.master, b"\x11")
                self.read(3.0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(5)
        finally:
            self.child.kill()
            self.child.wait()
            os.close(self.master)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def measure(nodes: int, layers: int, size: tuple[int, int], seconds: float) -> None:
    """Measure one network and print it."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "late.json"
        told = [str(nodes), str(layers), str(report)]
        rng = random.Random(2)
        keys = []
        with Watched(size, *told, "0") as app:
            app.read(4.0)
            before, begun = _cpu(app.process), time.perf_counter()
            app.read(seconds)
            idle = (_cpu(app.process) - before) / (time.perf_counter() - begun)
            memory = app.process.memory_info().rss >> 20
            for _ in range(40):
                app.read(0.1 + rng.random() * 0.2)
                keys.append(app.key())
        with Watched(size, *told, "1") as app:
            app.read(4.0 + seconds)
        late = [tuple(one) for one in json.loads(report.read_text())]
    start = late[0][0] + 3.0
    longest: dict[int, float] = {}
    for at, _, spent in late:
        if at >= start:
            second = int(at - start)
            longest[second] = max(longest.get(second, 0.0), spent)
    values = list(longest.values())[1:-1]
    by_clock = max(lateness for at, lateness, _ in late if at >= start + 1)
    print(
        f"{nodes:5} nodes, {layers} layers: idle {idle:6.2%} of a core, {memory} MiB; loop held "
        f"up {1000 * statistics.median(values):.1f} ms by an update (p50), at most "
        f"{1000 * max(values):.1f} ({1000 * by_clock:.1f} by the clock); key to screen "
        f"{1000 * statistics.median(keys):.1f} ms (p50), "
        f"{1000 * max(keys):.1f} at most",
        flush=True,
    )


def main() -> None:
    """Measure each network."""
    if sys.argv[1:2] == ["--child"]:
        nodes, layers, report, probing = sys.argv[2:6]
        child(int(nodes), int(layers), Path(report), probing == "1")
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="120x40")
    given = parser.parse_args()
    width, _, height = given.size.partition("x")
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}, terminal {given.size}"
    )
    for nodes in given.nodes:
        measure(nodes, given.layers, (int(width), int(height)), given.seconds)


if __name__ == "__main__":
    main()
