"""Strikes hosts and brings them back, and knows who can be done without."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from diffuse_core import wiring
from diffuse_core.domain.slices import gaps
from diffuse_core.errors import DiffuseError
from tests.bench.link_proxy import ANYBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import NetworkView, Telemetry
    from tests.bench.shaped_network import ShapedNetwork
    from tests.e2e.kill_plan import Kind

SAFE_S = 180.0
IDLE_S = 30.0
POLL_S = 0.2
REPLICAS = 2


class Recovery:
    """For the hosts of one network; use as an async context."""

    def __init__(
        self, network: ShapedNetwork, names: Sequence[str], options: Sequence[str]
    ) -> None:
        self._network = network
        self._names = tuple(names)
        self._options = tuple(options)
        self._struck: dict[str, Kind] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}
        self._slices: dict[str, Slice] = {}
        self._layers = 0

    async def __aenter__(self) -> Recovery:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._returning.values():
            task.cancel()
        if self._returning:
            await asyncio.wait(self._returning.values())

    async def until_safe(self) -> None:
        """Wait until every layer is held by two hosts that are well."""
        async with asyncio.timeout(SAFE_S):
            while True:
                self._learn(await self._network.view())
                if self._holders() >= REPLICAS:
                    return
                await asyncio.sleep(POLL_S)

    def _learn(self, view: NetworkView) -> None:
        well = {
            node.node: node.slice
            for node in view.nodes
            if node.liveness == "alive" and node.state == "ready" and node.slice is not None
        }
        for name, task in list(self._returning.items()):
            if task.done():
                task.result()
                if self._network.nodes[name] in well:
                    del self._returning[name]
        self._layers = view.models[0].layers if view.models else 0
        self._slices = {
            name: well[self._network.nodes[name]]
            for name in self._names
            if self._network.nodes[name] in well and name not in self._returning
        }

    def _holders(self, *without: str) -> int:
        """By how many hosts the layer is held that is held by the fewest."""
        held = [part for name, part in self._slices.items() if name not in without]
        return min(
            (sum(layer in range(p.start, p.end) for p in held) for layer in range(self._layers)),
            default=0,
        )

    def may_strike(self, name: str) -> bool:
        """Whether the others hold all layers."""
        held = [
            part
            for other, part in self._slices.items()
            if other != name and other not in self._struck
        ]
        return not gaps(self._layers, held)

    async def strike(self, name: str, kind: Kind) -> None:
        """Do it."""
        self._struck[name] = kind
        if kind == "kill":
            self._network.signal(name, signal.SIGKILL)
        elif kind == "stop":
            self._network.signal(name, signal.SIGSTOP)
        else:
            state = "cut" if kind == "cut" else "swallowed"
            await self._network.proxy.set_state(name, ANYBODY, state)

    async def mend(self) -> None:
        """Let all that were struck come back; that takes a while."""
        for name, kind in self._struck.items():
            if kind == "kill":
                await asyncio.to_thread(self._network.processes.running[name].wait)
            elif kind == "stop":
                self._network.signal(name, signal.SIGCONT)
            else:
                await self._network.proxy.set_state(name, ANYBODY, "up")
            self._returning[name] = asyncio.create_task(self._back(name, again=kind == "kill"))
        self._struck.clear()

    async def _back(self, name: str, *, again: bool) -> None:
        if again:
            await self._network.add_host(name, *self._options)
        await self._told(name, lambda telemetry: telemetry.stage == "ready")

    async def _told(self, name: str, wanted: Callable[[Telemetry], bool]) -> None:
        """Wait until a host tells its owner what is wanted."""
        directory = self._network.processes.directory / name
        while True:
            try:
                attached = await wiring.attach(directory, self._network.network)
            except DiffuseError:
                await asyncio.sleep(POLL_S)
                continue
            try:
                async for update in attached.updates():
                    if update.telemetry is not None and wanted(update.telemetry):
                        return
            except DiffuseError:
                pass
            finally:
                await attached.close()

    async def left_over(self) -> list[str]:
        """Hosts that still hold something of a session long after all ended."""
        await self.until_safe()
        found = []
        for name in self._names:
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._told(name, _is_idle)
            except TimeoutError:
                found.append(f"{name} still holds a session after {IDLE_S:.0f} s")
        return found


def _is_idle(telemetry: Telemetry) -> bool:
    return telemetry.sessions == 0 and telemetry.kv_used == 0
