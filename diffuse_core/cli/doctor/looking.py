"""A look at the network for several checks: found once, asked once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.dialled import dial_all
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.cli.doctor.network import AddressFacts, SentinelFacts
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import record_node
from diffuse_core.domain.relayed_address import parse_relayed
from diffuse_core.errors import DiffuseError, Unreachable
from diffuse_core.services.probing import Probe, Prober
from diffuse_core.settings import Places, running_node

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.view import NetworkView
    from diffuse_core.services.observer import Observer
    from diffuse_core.settings import NetworkOptions

LOOK_S = 6.0
TO_NODE_S = 3.0
MAX_SENTINELS = 5
MAX_PROBED = 8


class Look:
    """What several checks want to know of the network. Used within `async with`.

    `given` are the bootstrap addresses; those that lead nowhere are left out of the look.
    """

    def __init__(self, given: tuple[str, ...], state: Path, network: NetworkOptions) -> None:
        self.given = given
        self.why = ""
        self._state = state
        self._network = network
        self._observer: Observer | None = None
        self._dialled: asyncio.Task[list[AddressFacts]] | None = None
        self._found: asyncio.Task[None] | None = None
        self._probed: asyncio.Task[dict[NodeId, Probe | None]] | None = None

    async def __aenter__(self) -> Look:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._dialled, self._found, self._probed) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._observer is not None:
            await self._observer.close()

    async def addresses(self) -> list[AddressFacts]:
        """How far a dial of each bootstrap address came."""
        if self._dialled is None:
            self._dialled = asyncio.ensure_future(dial_all(self.given, self._network))
        # Whoever waits may give up; the others want it all the same.
        return await asyncio.shield(self._dialled)

    async def observer(self) -> Observer | None:
        """Who looked at the network; None where none was found, and `why` says why."""
        if self._found is None:
            self._found = asyncio.ensure_future(self._find())
        await asyncio.shield(self._found)
        return self._observer

    async def view(self) -> NetworkView | None:
        """What the network looks like."""
        observer = await self.observer()
        return None if observer is None else observer.view()

    async def probes(self) -> dict[NodeId, Probe | None]:
        """Round trips to sentinels, then hosts, and what their clocks show; None: no answer."""
        if self._probed is None:
            self._probed = asyncio.ensure_future(self._probe())
        return await asyncio.shield(self._probed)

    async def _find(self) -> None:
        from diffuse_core.finding import find_network

        given = self.given
        if given:
            good = [one.address for one in await self.addresses() if one.failed == "done"]
            if not good:
                self.why = "none of the bootstrap addresses leads to it"
                return
            given = tuple(good)
        try:
            async with asyncio.timeout(LOOK_S):
                # On a disk that does not answer, what is read next would stop all checks.
                await in_thread(lambda: running_node(self._state))
                self._observer = await find_network(Places(given, self._state), self._network)
        except TimeoutError:
            self.why = f"no node told what it knows within {LOOK_S:g} s"
        except DiffuseError as error:
            self.why = str(error).partition(". Start one with")[0]

    async def _probe(self) -> dict[NodeId, Probe | None]:
        observer = await self.observer()
        if observer is None:
            return {}
        nodes = [node for node in observer.view().nodes if node.liveness != "dead"]
        nodes.sort(key=lambda node: node.role != "sentinel")
        ids = [NodeId(bytes.fromhex(node.node)) for node in nodes[:MAX_PROBED]]
        rng = random.Random(os.urandom(8))  # noqa: S311  (no secret)
        prober = Prober(observer.links, observer.clock, rng)

        async def one(node: NodeId) -> Probe | None:
            with contextlib.suppress(TimeoutError, Unreachable):
                async with asyncio.timeout(TO_NODE_S):
                    link = await observer.links.to(node, observer.addresses(node))
                    return await prober.probe(link)
            return None

        return dict(zip(ids, await asyncio.gather(*map(one, ids)), strict=True))

    async def sentinels(self) -> list[SentinelFacts]:
        """The sentinels, and whether they relay, tried with one node each."""
        observer, view = await self.observer(), await self.view()
        if observer is None or view is None:
            return []
        probes = await self.probes()
        found = [n for n in view.nodes if n.role == "sentinel" and n.liveness != "dead"]

        async def one(node: str, short: str) -> SentinelFacts:
            probe = probes.get(NodeId(bytes.fromhex(node)))
            clients = sum(node in other.relays for other in view.nodes)
            relayed = await _relays(observer, NodeId(bytes.fromhex(node)))
            trip = None if probe is None else probe.rtt_s
            return SentinelFacts(short, trip, clients, relayed)

        listed = [one(node.node, node.short) for node in found[:MAX_SENTINELS]]
        return list(await asyncio.gather(*listed))


async def _relays(observer: Observer, sentinel: NodeId) -> bool | None:
    """Whether a node that is met through it can be met; None where none is."""
    for member in observer.members():
        node = record_node(member.record)
        through = [
            address
            for address in observer.addresses(node)
            if (place := parse_relayed(address)) is not None and place.sentinel == sentinel
        ]
        if not through or not member.live:
            continue
        try:
            async with asyncio.timeout(TO_NODE_S):
                await observer.links.dial(through[0], node)
        except (TimeoutError, Unreachable):
            return False
        return True
    return None
