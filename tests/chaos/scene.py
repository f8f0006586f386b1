"""The network of a run: real processes, and what can be done to them and their links."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from diffuse_core import wiring
from diffuse_core.domain.slices import gaps
from diffuse_core.errors import DiffuseError
from diffuse_core.settings import NODE_FILE, running_node
from tests.bench.link_proxy import PLACE
from tests.chaos.api import follow_server, start_server
from tests.e2e.lives import Watch, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.bench.link_process import ProxyProcess
    from tests.chaos.fault_plan import Cast
    from tests.chaos.ledger import Ledger
    from tests.e2e.lives import Life

READY_S = 150.0
SEEN_S = 90.0
END_S = 40.0
"""What a node that is asked to end may take: seconds for its sessions, and a busy machine."""
WATCH_S = 1.0
FRESH_S = 3.0
"""Nodes tell their owner what they see once a second."""
LOOK_S = 5.0
"""The client that stays asks so often who is there."""


class Scene(Watch):
    """All nodes of a run; use as an async context after `Watch`'s manner."""

    def __init__(
        self,
        directory: Path,
        model: Path,
        cast: Cast,
        proxy: ProxyProcess,
        ledger: Ledger,
        layers: dict[str, int],
    ) -> None:
        super().__init__(directory, model, "--log-level", "info")
        self.directory = directory
        self.model = model
        self.cast = cast
        self.proxy = proxy
        self.ledger = ledger
        self.layers = layers
        """How many layers each host holds at most."""
        self.observer: Observer | None = None
        self.client: ClientService | None = None
        self.struck: set[str] = set()
        """Those to whom something is done just now."""
        self._places: dict[str, str] = {}

    @property
    def bootstrap(self) -> str:
        """Where all sentinels are reached, for --bootstrap."""
        return ",".join(self._places[name] for name in self.cast.sentinels)

    # --- starting -----------------------------------------------------------------------------

    async def launch(
        self, name: str, *extra: str, model: Path | None = None, within: Sequence[str] = ()
    ) -> Life:
        """Start a node as its name asks, also again. Raises AssertionError when it does not."""
        if name.startswith("serve"):
            return await self._launch_server(name)
        options = [*extra]
        if name in self.cast.linked:
            if name not in self._places:
                self._places[name] = f"{PLACE}:{await self.proxy.open(name)}"
            options += ["--public-addr", self._places[name]]
        elif name.startswith("host") and "--relay" not in options:
            options += ["--relay", "always"]
        known = [self._places[s] for s in self.cast.sentinels if s in self._places and s != name]
        if known:
            options += ["--bootstrap", ",".join(known)]
        if name in self.layers:
            options += ["--max-layers", str(self.layers[name])]
        life = await self.start(name, *options, model=model, within=within)
        port = int(life.address.rpartition(":")[2])
        # Also those that nobody dials here: the proxy knows them by what they dial.
        await self.proxy.lead(name, port, life.pid)
        return life

    async def _launch_server(self, name: str) -> Life:
        """Start a server for programs, where it was before."""
        port = self._places.get(name, ":0").rpartition(":")[2]
        life = await start_server(self, name, "--port", port, "--bootstrap", self.bootstrap)
        self._places[name] = life.address
        self.lives.append(life)
        self._tasks[name] = asyncio.create_task(follow_server(life))
        return life

    @contextlib.asynccontextmanager
    async def observed(self) -> AsyncIterator[None]:
        """With a client in this process that stays for all of the run, and a guard."""
        places = tuple(self._places[name] for name in self.cast.sentinels)
        async with wiring.observe(places, self.network) as (self.observer, self.client):
            guards = [
                asyncio.create_task(self._watch_over()),
                asyncio.create_task(self._look_again(self.observer)),
            ]
            try:
                yield
            finally:
                for guard in guards:
                    guard.cancel()
                await asyncio.wait(guards)

    async def _look_again(self, observer: Observer) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await observer.look_again()

    async def _watch_over(self) -> None:
        """Tell of processes that end though nobody ended them."""
        while True:
            await asyncio.sleep(WATCH_S)
            for life in self.running():
                process = self.processes.running[life.name]
                if life.name in self.struck or process.pid != life.pid:
                    continue
                if (code := process.poll()) is not None:
                    life.ended = time.time()
                    self.ledger.violation(
                        f"{life.name} ended by itself with {code}: {self.tail(life.name)}"
                    )

    def tail(self, name: str) -> str:
        """The end of its log."""
        return self.processes.log(name)[-600:]

    # --- ending -------------------------------------------------------------------------------

    async def finish(self, name: str, how: signal.Signals) -> None:
        """End a node by a signal; an orderly end leaves nothing behind."""
        life = self.life(name)
        process = self.processes.running[name]
        self.signal(name, how)
        life.ended = time.time()
        try:
            code = await asyncio.to_thread(process.wait, END_S)
        except subprocess.TimeoutExpired:
            self.ledger.violation(f"{name} did not end within {END_S:.0f} s of {how.name}")
            process.kill()
            code = await asyncio.to_thread(process.wait, END_S)
        self.exit_codes[how.name, code] += 1
        if how == signal.SIGTERM:
            if code:
                self.ledger.violation(f"{name}: exit {code} after SIGTERM: {self.tail(name)}")
            if (self.directory / name / NODE_FILE).exists():
                self.ledger.violation(f"{name} left its {NODE_FILE} after an orderly end")
        await self._over(life)

    async def _over(self, life: Life) -> None:
        """Listen no more to a life that ended."""
        task = self._tasks.get(life.name)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def gone(self, name: str, seconds: float) -> int | None:
        """The exit code of a process that may end by itself within so many seconds."""
        process = self.processes.running[name]
        with contextlib.suppress(TimeoutError):
            await until(lambda: process.poll() is not None, seconds)
        return process.returncode

    async def try_start(
        self, name: str, *extra: str, model: Path | None = None, within: Sequence[str] = ()
    ) -> tuple[Life | None, int | None]:
        """Start a host that may refuse to run: its life, or the exit code it ended with."""
        self.struck.add(name)
        try:
            life = await self.launch(name, *extra, model=model, within=within)
        except AssertionError:
            code = self.processes.running[name].poll()
            if code is None:
                self.ledger.violation(f"{name} neither listens nor ends: {self.tail(name)}")
                self.processes.running[name].kill()
            return None, code
        return life, None

    # --- what the network knows ---------------------------------------------------------------

    def view(self) -> NetworkView:
        """What a node sees that is well: a sentinel, or whoever told something last."""
        well = [life for life in self.running() if life.view is not None and life.samples]
        assert well, "no node tells what it sees"

        def standing(life: Life) -> tuple[bool, bool, float]:
            at = life.samples[-1][0]
            fresh = life.name not in self.struck and at > time.time() - FRESH_S
            return fresh, life.name.startswith("sentinel"), at

        view = max(well, key=standing).view
        assert view is not None
        return view

    def seen(self, life: Life) -> NodeView | None:
        """What it sees of a node."""
        return next((node for node in self.view().nodes if node.node == life.node), None)

    def whole_model(self) -> ModelView | None:
        """The model that is asked for, as it would be chosen now."""
        return max(self.view().models, key=lambda one: (one.servable, one.hosts), default=None)

    def can_spare(self, name: str) -> bool:
        """Whether the other hosts hold all layers, apart from those that are struck."""
        if name.startswith("sentinel"):
            return not any(one in self.struck for one in self.cast.sentinels)
        model = self.whole_model()
        if not name.startswith("host") or model is None:
            return True
        gone = {life.node for life in self.running() if life.name in {name, *self.struck}}
        return not gaps(model.layers, self._held(model, gone))

    def _held(self, model: ModelView, without: set[str]) -> list[Slice]:
        return [
            node.slice
            for node in self.view().nodes
            if node.liveness == "alive" and node.state == "ready" and node.slice is not None
            and node.fingerprint == model.fingerprint and node.node not in without
        ]  # fmt: skip

    def holders(self, layer: int) -> list[str]:
        """The names of hosts whose slice has this layer, as far as the network knows."""
        nodes = {
            node.node for node in self.view().nodes
            if node.slice is not None and layer in range(node.slice.start, node.slice.end)
        }  # fmt: skip
        return [life.name for life in self.running() if life.node in nodes]

    async def until_seen_ready(self, life: Life) -> float | None:
        """Seconds until it serves and the network knows; None when that took too long."""
        began = time.monotonic()
        follower = self._tasks[life.name]
        with contextlib.suppress(TimeoutError):
            process = self.processes.running[life.name]
            await until(
                lambda: life.ready or follower.done() or process.poll() is not None, READY_S
            )
        if not life.ready:
            self.ledger.violation(f"{life.name} did not get ready: {self.tail(life.name)}")
            return None
        with contextlib.suppress(TimeoutError):
            await until(lambda: self._known_ready(life), SEEN_S)
            return time.monotonic() - began
        self.ledger.violation(f"{life.name} is ready, and the network sees {self.seen(life)}")
        return None

    def _known_ready(self, life: Life) -> bool:
        if life.name.startswith("serve"):
            return True
        node = self.seen(life)
        ready = node is not None and node.liveness == "alive"
        return ready and (not life.name.startswith("host") or node.state == "ready")

    async def until_servable(self, seconds: float) -> float | None:
        """Seconds until the model can be asked again; None when that took too long."""
        with contextlib.suppress(TimeoutError):
            return await until(lambda: (model := self.whole_model()) and model.servable, seconds)
        return None

    # --- the end ------------------------------------------------------------------------------

    async def end_all(self) -> None:
        """End all in order, and look what each leaves."""
        for life in self.running():
            self.signal(life.name, signal.SIGCONT)
        order = sorted(self.running(), key=lambda life: not life.name.startswith("host"))
        for life in order:
            self.struck.add(life.name)
            with contextlib.suppress(DiffuseError):
                await self.finish(life.name, signal.SIGTERM)

    def copy_of_model(self, name: str) -> Path:
        """A copy of the model's files that may be damaged; it has the model's name."""
        place = self.directory / "copies" / name / self.model.name
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(self.model, place)
        return place

    def locked(self) -> list[str]:
        """Nodes that say that they run, though all have ended."""
        return [
            path.name for path in self.directory.iterdir()
            if path.is_dir() and running_node(path) is not None
        ]  # fmt: skip


def root_missing() -> str:
    """Why no file system can be mounted here; empty when one can."""
    if os.name != "posix" or os.geteuid():
        return "small file systems need root"
    if shutil.which("mount") is None:
        return "no `mount` command here"
    return ""
