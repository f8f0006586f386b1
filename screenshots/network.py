"""A real network on this machine for the pictures: the demo's, and hosts that hold it twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from diffuse_core.cli.demo import demo_network
from diffuse_core.cli.nodes import WITH_PARENT
from diffuse_core.settings import PUBLIC, running_node
from diffuse_core.wiring import own_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from diffuse_core.cli.demo_network import DemoNetwork

MIB = 2**20


class Network:
    """Names and kills hosts of the network by their node ids."""

    def __init__(self, demo: DemoNetwork, hosts: int, more: int, place: Path) -> None:
        names = [demo.state_dir(f"host-{number}") for number in range(1, hosts + 1)]
        self.states = [*names, *(place / f"more-{number}" for number in range(1, more + 1))]
        self.first = names[0]

    def kill(self, node: str) -> None:
        """End the process of a node as a power cut would."""
        for state in self.states:
            found = running_node(state)
            if found is not None and found.node == node:
                os.kill(found.pid, signal.SIGKILL)
                return
        raise LookupError(f"no process of node {node[:8]}")


@contextlib.asynccontextmanager
async def real_network(hosts: int, more: int, place: Path) -> AsyncIterator[Network]:
    """The demo's network of `hosts`, and `more` hosts of the same size, as processes."""
    async with demo_network(hosts, PUBLIC, "bf16") as demo:
        processes = [
            await asyncio.create_subprocess_exec(
                *own_command(
                    "host",
                    *("--model", "demo", "--dtype", "bf16", "--threads", "1"),
                    *("--memory", f"{demo.cap // MIB}MiB", "--bootstrap", demo.sentinel),
                    *("--listen", "127.0.0.1:0", "--no-mdns"),
                    *("--state-dir", str(place / f"more-{number}"), WITH_PARENT),
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            for number in range(1, more + 1)
        ]
        try:
            yield Network(demo, hosts, more, place)
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            await asyncio.gather(*(process.wait() for process in processes))
