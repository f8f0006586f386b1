"""Real nodes, each a process that is only reached through the link proxy.

The client is in this process; what it and the nodes say to each other passes the proxy, by whose
rules the client's links and those between stages differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.settings import NetworkOptions, running_node
from diffuse_core.wiring import observe
from tests.bench.link_process import proxy_process
from tests.bench.link_proxy import PLACE
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence

    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.bench.link_process import ProxyProcess

SENTINEL = "sentinel"
LISTEN_S = 90.0
SERVABLE_S = 240.0
POLL_S = 0.1
TAIL = 2000


class ShapedNetwork:
    """Hosts of one model, and a sentinel. Use `shaped_network`."""

    def __init__(
        self, directory: Path, model: str, options: Sequence[str], proxy: ProxyProcess | None
    ) -> None:
        self.processes = Processes(directory)
        self._proxy = proxy
        self.network = NetworkOptions(f"shaped-{os.getpid()}-{directory.name}", mdns=False)
        self.bootstrap = ""
        self.nodes: dict[str, str] = {}
        """Node ids by name."""
        self._model = model
        self._options = tuple(options)
        self._places: dict[str, str] = {}

    @property
    def proxy(self) -> ProxyProcess:
        """What all links go through; there must be one."""
        assert self._proxy is not None
        return self._proxy

    async def start_sentinel(self) -> None:
        """Start the sentinel that all others are told of."""
        await self._start(SENTINEL, "sentinel")
        self.bootstrap = self._places[SENTINEL]

    async def add_host(self, name: str, *extra: str, within: Sequence[str] = ()) -> None:
        """Start a host, behind the words `within`; started again it is the same node."""
        words = ("host", "--model", self._model, "--relay", "never", "--bootstrap", self.bootstrap)
        await self._start(name, *words, *self._options, *extra, within=within)

    async def _start(self, name: str, *words: str, within: Sequence[str] = ()) -> None:
        if self._proxy is not None:
            if name not in self._places:
                self._places[name] = f"{PLACE}:{await self._proxy.open(name)}"
            words = (*words, "--public-addr", self._places[name])
        named = (*words, "--listen", f"{PLACE}:0", *self.network.arguments())
        process = self.processes.start(name, *named, within=within)
        directory = self.processes.directory / name
        async with asyncio.timeout(LISTEN_S):
            while (found := running_node(directory)) is None or found.pid != process.pid:
                assert process.poll() is None, self.processes.log(name)[-TAIL:]
                await asyncio.sleep(POLL_S)
        self.nodes[name] = found.node
        if self._proxy is None:
            self._places[name] = found.address
        else:
            port = int(found.address.rpartition(":")[2])
            await self._proxy.lead(name, port, process.pid)

    def name_of(self, node: str) -> str:
        """The name of a node, by its id."""
        return next(name for name, known in self.nodes.items() if known == node)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node's process, if it still runs."""
        process = self.processes.running[name]
        if process.poll() is None:
            process.send_signal(number)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[Observer, ClientService]]:
        """Somebody new on the network, as `query` is."""
        async with observe((self.bootstrap,), self.network) as (observer, client):
            yield observer, client

    async def view(self) -> NetworkView:
        """What somebody new sees."""
        async with self.client() as (observer, _):
            return observer.view()

    async def until_servable(self, hosts: int, replicas: int = 1) -> ModelView:
        """Wait until so many hosts are ready, and hold every layer so many times."""
        model: ModelView | None = None
        view: NetworkView | None = None
        try:
            async with asyncio.timeout(SERVABLE_S):
                while True:
                    view = await self.view()
                    ready = [node for node in view.nodes if node.state == "ready"]
                    model = view.models[0] if view.models else None
                    if model and len(ready) >= hosts and model.min_replicas >= replicas:
                        return model
                    for name, process in self.processes.running.items():
                        assert process.poll() is None, self.processes.log(name)[-TAIL:]
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"not servable: {view}") from None

    async def stop(self) -> None:
        """End all."""
        for name in self.processes.running:
            # One that is stopped does not hear that it should end.
            self.signal(name, signal.SIGCONT)
        await asyncio.to_thread(self.processes.__exit__, None, None, None)


@contextlib.asynccontextmanager
async def shaped_network(
    directory: Path, model: str, *options: str, seed: int | None = 1
) -> AsyncIterator[ShapedNetwork]:
    """A network of a sentinel, to which hosts of `model` with these options may be added.

    Args:
        directory: where processes have their state; its name is part of the network's.
        model: as `host --model` has it.
        options: of every host.
        seed: the link proxy's; None does without a proxy.
    """
    async with contextlib.AsyncExitStack() as stack:
        proxy = None
        if seed is not None:
            proxy = await stack.enter_async_context(proxy_process(seed))
        network = ShapedNetwork(directory, model, options, proxy)
        stack.push_async_callback(network.stop)
        await network.start_sentinel()
        yield network


@contextlib.asynccontextmanager
async def stages(
    given: argparse.Namespace,
    layers: Sequence[int],
    *pins: Sequence[int],
    proxied: bool = True,
    dtype: str = "",
) -> AsyncIterator[tuple[ShapedNetwork, str]]:
    """A network for a benchmark with these options, of such stages; with the model's id."""
    options = ("--dtype", dtype or given.dtype, "--threads", str(given.threads))
    seed = given.seed if proxied else None
    with tempfile.TemporaryDirectory() as place:
        made = shaped_network(Path(place), given.model, *options, "--device", "cpu", seed=seed)
        async with made as network:
            yield network, await add_stages(network, layers, *pins)


async def add_stages(network: ShapedNetwork, layers: Sequence[int], *pins: Sequence[int]) -> str:
    """Add a host for each stage, one after the other so that each takes the next layers.

    Args:
        network: where.
        layers: how many layers each holds at most.
        pins: the cores of each; without them any.

    Returns:
        The model's id on the network.
    """
    for number, most in enumerate(layers):
        pin = ",".join(map(str, pins[number])) if pins else ""
        within = ("taskset", "-c", pin) if pin else ()
        await network.add_host(f"host-{number}", "--max-layers", str(most), within=within)
        model = await network.until_servable(number + 1, replicas=0)
    assert model.servable, model
    return model.id
