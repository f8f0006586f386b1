"""A real small network on this machine: a sentinel and capped hosts, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.cli.nodes import WITH_PARENT
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.planner import plan
from diffuse_core.domain.selection import DEMO_ALIAS, DEMO_MODEL_ID
from diffuse_core.domain.slices import Slice, gaps
from diffuse_core.errors import DiffuseError, UsageError
from diffuse_core.settings import DEFAULT_PORT, running_node
from diffuse_core.wiring import model_store, observe, own_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.settings import NetworkOptions

MIB = 2**20
START_TIMEOUT_S = 60.0
SERVABLE_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 8.0
POLL_S = 0.1
LOOK_S = 0.5
LOG_TAIL = 2000


def tight_cap(shape: ModelShape, hosts: int) -> int:
    """The smallest cap, in whole MiB, with which `hosts` hosts cover the model.

    So each is needed, and for two or more none can hold the whole.
    """
    low, high = 1, shape.needed_bytes(_whole(shape)) // MIB + 1
    while low < high:
        middle = (low + high) // 2
        if _covers(shape, hosts, middle * MIB):
            high = middle
        else:
            low = middle + 1
    return low * MIB


def _whole(shape: ModelShape) -> Slice:
    return Slice(0, shape.layers)


def _covers(shape: ModelShape, hosts: int, cap: int) -> bool:
    held: list[Slice] = []
    for _ in range(hosts):
        try:
            held.append(plan(cap, shape, held, own=NodeId(bytes(32))).slice)
        except UsageError:
            return False
    return not gaps(shape.layers, held)


class DemoNetwork:
    """Starts the processes on `start`, ends all of them on `stop`; nothing outlives it."""

    def __init__(
        self, hosts: int, network: NetworkOptions, report: Callable[[str], None], place: str | None
    ) -> None:
        if place is not None:
            Path(place).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hosts = hosts
        # All of it is on this machine.
        self._network = replace(network, mdns=False)
        self._report = report
        self._dir = Path(tempfile.mkdtemp(prefix="diffuse-demo-", dir=place))
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.sentinel = ""
        self.cap = 0

    def state_dir(self, name: str) -> Path:
        """The state directory of one of the processes: `sentinel`, `host-1`, ..."""
        return self._dir / name

    async def start(self, shape: ModelShape, contract: Contract, cores: int) -> None:
        """Start everything and wait until the model is servable; the hosts share `cores`.

        Raises:
            DiffuseError: a process ended, or the model did not get servable in time.
        """
        self.cap = tight_cap(shape, self._hosts)
        await self._start_sentinel()
        self._report(f"sentinel listens on {self.sentinel}")
        threads = max(1, cores // self._hosts)
        for number in range(1, self._hosts + 1):
            await self._spawn(
                f"host-{number}",
                "host",
                "--model",
                DEMO_ALIAS,
                "--dtype",
                contract,
                "--device",
                "cpu",
                "--memory",
                f"{self.cap // MIB}MiB",
                "--bootstrap",
                self.sentinel,
                "--listen",
                "127.0.0.1:0",
                "--threads",
                str(threads),
            )
        self._report(
            f"{self._hosts} hosts start; each may hold {self.cap // MIB} MiB of weights and KV "
            f"cache; the whole needs {shape.needed_bytes(_whole(shape)) // MIB} MiB in {contract}"
        )
        await self._until_servable()

    async def _start_sentinel(self) -> None:
        for port in dict.fromkeys((_free_port(), 0)):
            await self._spawn("sentinel", "sentinel", "--listen", f"127.0.0.1:{port}")
            try:
                self.sentinel = await self._address("sentinel")
            except DiffuseError:
                # Another program may have taken the port since it was looked at.
                if not port or self._processes["sentinel"].returncode is None:
                    raise
            else:
                return

    async def _spawn(self, name: str, command: str, *arguments: str) -> None:
        directory = self.state_dir(name)
        directory.mkdir(mode=0o700, exist_ok=True)
        with (directory / "log").open("wb") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *own_command(
                    command,
                    *arguments,
                    *self._network.arguments(),
                    "--state-dir",
                    str(directory),
                    WITH_PARENT,
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                # What is set for a user's own hosts is not for these.
                env=self._network.environment(only_flags="*"),
                start_new_session=True,
            )

    async def _address(self, name: str) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                while True:
                    self._check()
                    found = running_node(self.state_dir(name))
                    if found is not None:
                        return found.address
                    await asyncio.sleep(POLL_S)
        raise DiffuseError(f"{name} did not start in {START_TIMEOUT_S:.0f} s")

    def _check(self) -> None:
        """Raise when a process ended by itself, with the last words of its log."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                words = (self.state_dir(name) / "log").read_text(errors="replace")[-LOG_TAIL:]
                raise DiffuseError(f"{name} ended with status {process.returncode}:\n{words}")

    async def _until_servable(self) -> None:
        told = ""
        try:
            async with asyncio.timeout(SERVABLE_TIMEOUT_S):
                while True:
                    self._check()
                    async with observe((self.sentinel,), self._network) as (observer, _):
                        view = observer.view()
                    text, done = _progress(view, self._hosts)
                    if text != told:
                        self._report(text)
                        told = text
                    if done:
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise DiffuseError(
                f"the model was not servable after {SERVABLE_TIMEOUT_S:.0f} s: {told}"
            ) from None

    async def watch(self) -> None:
        """Wait until a process ends by itself, which is an error."""
        while True:
            self._check()
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """End every process, the stubborn ones by force, and remove what they wrote."""
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
        waits = [asyncio.ensure_future(p.wait()) for p in self._processes.values()]
        if waits:
            await asyncio.wait(waits, timeout=STOP_TIMEOUT_S)
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        if waits:
            await asyncio.wait(waits, timeout=STOP_TIMEOUT_S)
        shutil.rmtree(self._dir, ignore_errors=True)


def _free_port() -> int:
    """The default port when it is free, so that commands need no --bootstrap; else any."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return 0
        return DEFAULT_PORT


def _progress(view: NetworkView, hosts: int) -> tuple[str, bool]:
    slices: dict[str, list[Slice]] = {}
    for node in view.nodes:
        if node.slice is not None and node.state is not None:
            slices.setdefault(node.state, []).append(node.slice)
    ready = len(slices.get("ready", ()))
    model = next((model for model in view.models if model.id == DEMO_MODEL_ID), None)
    text = f"{ready} of {hosts} hosts ready"
    for state, parts in sorted(slices.items()):
        text += f"; {state} layers {', '.join(map(str, sorted(parts)))}"
    return text, model is not None and model.servable and ready == hosts


def demo_shape(progress: Callable[[float], None], contract: Contract) -> ModelShape:
    """Get the demo model if need be, and read its sizes. Blocks.

    Raises:
        ModelUnknown, Unreachable: it cannot be had; the message says why.
    """
    source = model_store().open(DEMO_ALIAS, progress)
    return source.shape(contract)
