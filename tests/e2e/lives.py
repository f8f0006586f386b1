"""Processes under watch: what each told its owner, beside what was really done to it.

The watcher attaches to every node as the app does, so it hears each event and one view and one
telemetry a second, and costs a node next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from diffuse_core import wiring
from diffuse_core.errors import DiffuseError
from diffuse_core.settings import NetworkOptions, running_node
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from diffuse_core.domain.view import Event, NetworkView, Telemetry
    from diffuse_core.services.attachment import NodeAttachment

LISTEN_S = 90.0
READY_S = 120.0
POLL_S = 0.1
HARD = 8
"""Characters of a node id that events name it by."""


@dataclass
class Life:
    """One run of one process. Times are Unix seconds."""

    name: str
    node: str
    address: str
    pid: int
    began: float
    ended: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    samples: list[tuple[float, Telemetry]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    view: NetworkView | None = None
    held_dead: list[tuple[float, str]] = field(default_factory=list)

    @property
    def short(self) -> str:
        return self.node[:HARD]

    @property
    def ready(self) -> bool:
        """Whether it last told that it serves a slice; a sentinel whether it told anything."""
        last = self.samples[-1][1] if self.samples else None
        holds_nothing = self.name.startswith(("sentinel", "node", "serve"))
        return last is not None and (holds_nothing or last.stage == "ready")

    def age(self) -> float:
        """Seconds from its start to what it told last."""
        return self.samples[-1][0] - self.began if self.samples else 0.0

    def standing(self, since: float = 0.0) -> dict[str, str]:
        """How all nodes stand in its newest view; nothing when that is not of after `since`."""
        if self.view is None or self.view.taken_at < since:
            return {}
        return {node.node: node.liveness for node in self.view.nodes}

    def ran(self, start: float, end: float) -> bool:
        """Whether it ran, or was paused, all the time from `start` to `end`."""
        return self.began <= start and (self.ended is None or self.ended >= end)


async def until(condition: Callable[[], object], seconds: float = READY_S) -> float:
    """Wait for what other processes tell; the seconds it took."""
    begin = time.monotonic()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (no event to wait for)
            await asyncio.sleep(POLL_S)
    return time.monotonic() - begin


class Watch:
    """Starts, stops and watches nodes of one network; use as an async context."""

    def __init__(self, directory: Path, model: Path, *options: str) -> None:
        self.processes = Processes(directory)
        self.lives: list[Life] = []
        self.exit_codes: Counter[tuple[str, int]] = Counter()
        self._directory = directory
        self._model = model
        self.network = NetworkOptions(f"test-{os.getpid()}", mdns=False)
        self._options = (*self.network.arguments(), *options)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.detach()
        for name in self.processes.running:
            # One that is stopped does not hear that it should end.
            self.signal(name, signal.SIGCONT)
        await asyncio.to_thread(self.processes.__exit__, None, None, None)

    # --- what is done to them ---------------------------------------------------------------

    async def start(
        self, name: str, *extra: str, model: Path | None = None, within: Sequence[str] = ()
    ) -> Life:
        """Start a node behind the words `within`, and attach to it.

        Its role is what its name begins with: a sentinel, a node without a slice, else a host.
        """
        role = name.partition("-")[0]
        arguments = [role, "--listen", "127.0.0.1:0"]
        if role not in ("sentinel", "node"):
            arguments = ["host", *arguments[1:], "--model", str(model or self._model)]
            arguments += ["--threads", "1", "--dtype", "fp32"]
        process = self.processes.start(name, *arguments, *self._options, *extra, within=within)
        began = time.time()
        deadline = time.monotonic() + LISTEN_S
        directory = self._directory / name
        while (found := running_node(directory)) is None or found.pid != process.pid:
            assert process.poll() is None, self.processes.log(name)[-2000:]
            assert time.monotonic() < deadline, self.processes.log(name)[-2000:]
            await asyncio.sleep(POLL_S)
        life = Life(name, found.node, found.address, process.pid, began)
        self.lives.append(life)
        self._attach(life)
        return life

    def attach(self) -> None:
        """Listen again to all that run."""
        for life in self.running():
            self._attach(life)

    def _attach(self, life: Life) -> None:
        follow = self._follow(life, self._directory / life.name)
        self._tasks[life.name] = asyncio.create_task(follow)

    async def detach(self) -> None:
        """Listen no more: what the nodes then do they do of themselves."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def start_ready(self, name: str, *extra: str) -> Life:
        """Start a node, and wait until it serves."""
        life = await self.start(name, *extra)
        await self.until_ready(life)
        return life

    async def until_ready(self, life: Life) -> None:
        """Wait until a node serves."""
        follower = self._tasks[life.name]
        await until(lambda: life.ready or follower.done())
        if follower.done():
            follower.result()

    async def end(self, name: str, how: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it is gone."""
        life = self.life(name)
        self.signal(name, how)
        life.ended = time.time()
        process = self.processes.running[name]
        code = await asyncio.to_thread(process.wait, 20)
        self.exit_codes[how.name, code] += 1

    async def pause(self, name: str, seconds: float) -> None:
        """Stop a process, and let it go on after `seconds`."""
        life = self.life(name)
        stopped = time.time()
        self.signal(name, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.signal(name, signal.SIGCONT)
        life.pauses.append((stopped, time.time()))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, to a process that still is there."""
        process = self.processes.running[name]
        if process.poll() is None:
            process.send_signal(number)

    async def command(self, words: list[str], seconds: float) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors; -1 when it does not end."""
        try:
            done = await asyncio.to_thread(self.processes.command, *words, seconds=seconds)
        except subprocess.TimeoutExpired:
            return -1, "", f"did not end within {seconds:.0f} s"
        return done.returncode, done.stdout, done.stderr

    async def status(self, name: str) -> tuple[int, str, str]:
        """Ask a running node by its state directory what `status --json` says."""
        directory = str(self._directory / name)
        words = ["status", "--json", "--state-dir", directory]
        return await self.command([*words, *self.network.arguments()], 30)

    # --- what they say ----------------------------------------------------------------------

    async def _follow(self, life: Life, directory: Path) -> None:
        while life.ended is None:
            attached: NodeAttachment | None = None
            try:
                attached = await wiring.attach(directory, self.network)
                async for update in attached.updates():
                    now = time.time()
                    life.view = update.view
                    if update.telemetry is not None:
                        life.samples.append((now, update.telemetry))
                    life.events += update.events
                    dead = [n.node for n in update.view.nodes if n.liveness == "dead"]
                    life.held_dead += [(now, node) for node in dead]
            except DiffuseError:
                await asyncio.sleep(POLL_S)
            finally:
                if attached is not None:
                    with contextlib.suppress(DiffuseError):
                        await attached.close()

    def life(self, name: str) -> Life:
        """The last life of a name."""
        return next(life for life in reversed(self.lives) if life.name == name)

    def running(self) -> list[Life]:
        """Those that run now."""
        return [life for life in self.lives if life.ended is None]

    def ran(self, node: str, start: float, end: float) -> bool:
        """Whether a node was up, or only paused, from `start` to `end`."""
        return any(life.node == node and life.ran(start, end) for life in self.lives)

    def deaths_told(self) -> Iterator[tuple[Life, float, str]]:
        """Who said of whom (a node id) that it died, by event, and when."""
        nodes = {life.short: life.node for life in self.lives}
        for life in self.lives:
            for event in life.events:
                short, _, what = event.text.partition(" ")
                if what == "died" and short in nodes:
                    yield life, event.at, nodes[short]

    def left_over(self) -> list[str]:
        """Processes of this test that still run, though all should have ended."""
        return [
            f"{process.pid} {' '.join(process.cmdline()[:4])}"
            for process in psutil.process_iter()
            if str(self._directory) in _environment(process)
        ]


def _environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("DIFFUSE_STATE_DIR", "")
    except psutil.Error:
        return ""
