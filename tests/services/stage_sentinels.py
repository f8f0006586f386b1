"""Sentinels for a StageNet, and hosts that are met through them only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import Identity
from diffuse_core.domain.reservations import Candidate
from diffuse_core.services.links import Links
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations
from tests.services.stage_net import StageHost, swallow
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.slices import Slice
    from tests.services.stage_net import StageNet


class StageSentinel:
    """Relays; implements what services.relay needs of a directory."""

    def __init__(self, net: StageNet) -> None:
        self._net = net
        self.id = Identity(bytes([next(net.seeds)]) * 32).node
        self.clock = net.clock
        self._transport = net.transport(self.id)
        self.links = Links(self._transport, self.id)
        self.relay = RelayService(self, random.Random(2))
        self.alive = True

    async def start(self) -> StageSentinel:
        self._listener = await self._transport.listen("mem", 0, self.links.accept)
        self.address = self._listener.address
        self.relay.start()
        self._net.nodes.add(self.id)
        self._net.stack.push_async_callback(self._stop)
        return self

    async def _stop(self) -> None:
        if self.alive:
            await self._listener.close()
        await self.relay.close()
        await self.links.close()

    def kill(self) -> None:
        """As SIGKILL: all that it carries ends, nobody listens any more."""
        self.alive = False
        self._net.memory.kill(self.address)

    def freeze(self) -> None:
        """As SIGSTOP: what it carries is swallowed, and nobody gets another channel."""
        self.alive = False
        self._net.frozen.add(self.address)
        self.links._handlers.clear()
        for channel in tuple(self._net.memory._channels):
            if channel.owner == self.id:
                channel.send = swallow

    def members(self) -> tuple[Member, ...]:
        return ()


class RelayedHost(StageHost):
    """A host that says of no other place than sentinels that it is met there."""

    def __init__(self, net: StageNet, part: Slice, sentinels: Sequence[StageSentinel]) -> None:
        super().__init__(net, part)
        self._sentinels = sentinels
        base = self.transport.base
        self.reservations = Reservations(self, base, self._candidates, random.Random(self.id))

    def _candidates(self) -> list[Candidate]:
        return [Candidate(one.id, (one.address,), False) for one in self._sentinels if one.alive]

    async def start(self) -> None:
        await super().start()
        self.reservations.start()
        await until(lambda: len(self.reservations.held()) == len(self._sentinels))

    async def stop(self) -> None:
        await self.reservations.close()
        await super().stop()

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.reservations.addresses()

    def kill(self) -> None:
        if self.alive:
            super().kill()
            # What it was is not to reserve places any more.
            self.cut()
