"""Channels within one process, for tests and simulations: no sockets, no cryptography.

Identities are asserted, not proven. Frames arrive in order, as soon as the loop runs. Addresses
are HOST:PORT like any other, by custom `mem:1`, `mem:2`, ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.sealed_stream import MAX_FRAME_BYTES
from diffuse_core.errors import ChannelClosed, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.ports import Carrier, Channel

log = logging.getLogger(__name__)

QUEUE_FRAMES = 64
SEND_DEADLINE_S = 20.0
CLOSE_S = 2.0

_FRAME, _FAREWELL = b"\x00", b"\x01"


class MemoryNetwork:
    """What connects the transports of one process; links can be cut and addresses killed."""

    def __init__(self) -> None:
        self._listeners: dict[str, MemoryListener] = {}
        # A dict and not a set, so that they break in the order they were dialled.
        self._channels: dict[MemoryChannel, None] = {}
        self._cut: set[frozenset[NodeId]] = set()
        self._dialled = 0

    def transport(self, node: NodeId) -> MemoryTransport:
        """The transport of one node."""
        return MemoryTransport(self, node)

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Break the channels between two nodes, and let none come about until `heal`."""
        self._cut.add(frozenset((one, other)))
        for channel in tuple(self._channels):
            if {channel.owner, channel.remote} == {one, other}:
                channel.break_off()

    def heal(self, one: NodeId, other: NodeId) -> None:
        """Undo `cut`."""
        self._cut.discard(frozenset((one, other)))

    def kill(self, address: str) -> None:
        """Let whoever listens at `address` vanish, as a crash would: no farewell."""
        listener = self._listeners.pop(address)
        for channel in tuple(self._channels):
            if listener.node in (channel.owner, channel.remote):
                channel.break_off()
        listener.stop()

    def bind(self, listener: MemoryListener, host: str, port: int) -> str:
        """Give a listener its address. Raises UsageError when it is taken."""
        if port == 0:
            port = next(n for n in range(1, 2**16) if f"{host}:{n}" not in self._listeners)
        address = f"{host}:{port}"
        if address in self._listeners:
            raise UsageError(f"port {port} is in use; choose another with --listen")
        self._listeners[address] = listener
        return address

    def release(self, listener: MemoryListener) -> None:
        """Take back a listener's address."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def connect(self, node: NodeId, address: str, expected: NodeId | None) -> MemoryChannel:
        """A channel to whoever listens at `address`. Raises Unreachable."""
        listener = self._listeners.get(address)
        if listener is None:
            raise Unreachable(
                f"nothing listens at {address}: start the node there, or check the address"
            )
        if frozenset((node, listener.node)) in self._cut:
            raise Unreachable(f"no answer from {address}; check the address and the network")
        _check(address, node, listener.node, expected)
        self._dialled += 1
        near = MemoryChannel(node, listener.node, address, self._channels)
        far = MemoryChannel(listener.node, node, f"dial:{self._dialled}", self._channels)
        near.join(far)
        listener.serve(far)
        return near


class MemoryTransport:
    """Implements ports.Transport."""

    def __init__(self, network: MemoryNetwork, node: NodeId) -> None:
        self._network = network
        self._node = node

    async def dial(
        self,
        address: str,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
    ) -> Channel:
        """Open a channel (see ports.Transport.dial); never takes longer than one turn."""
        channel = self._network.connect(self._node, address.removeprefix("ws://"), expected)
        await asyncio.sleep(0)
        return channel

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> MemoryListener:
        """Accept channels (see ports.Transport.listen)."""
        return MemoryListener(self._network, self._node, host, port, accept)

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109 - part of the port
        *,
        dialled: bool,
    ) -> Channel:
        """Make a channel over a carrier (see ports.Transport.secure); ids are taken on trust."""
        del dialled
        try:
            async with asyncio.timeout(timeout):
                await carrier.send(self._node)
                remote = NodeId(await carrier.receive())
            _check(carrier.remote_address, self._node, remote, expected)
        except BaseException as error:
            await carrier.close()
            if isinstance(error, TimeoutError | ChannelClosed):
                raise Unreachable(
                    f"no node answered through {carrier.remote_address}; try again"
                ) from error
            raise
        return CarriedChannel(carrier, remote)


class MemoryListener:
    """Implements ports.Listener."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: NodeId,
        host: str,
        port: int,
        accept: Callable[[Channel], Awaitable[None]],
    ) -> None:
        self.node = node
        self._network = network
        self._accept = accept
        self._tasks: dict[asyncio.Task[None], MemoryChannel] = {}
        self.address = network.bind(self, host, port)

    def serve(self, channel: MemoryChannel) -> None:
        """Run `accept` for a channel that was dialled."""
        task = asyncio.create_task(self._serve(channel), name=f"accept {channel.remote_address}")
        self._tasks[task] = channel
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def stop(self) -> None:
        """Cancel what was accepted."""
        for task in tuple(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Stop accepting and end what was accepted; idempotent."""
        self._network.release(self)
        for channel in tuple(self._tasks.values()):
            await channel.close()
        self.stop()
        others = set(self._tasks) - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    async def _serve(self, channel: MemoryChannel) -> None:
        try:
            await self._accept(channel)
        except Exception:
            log.exception("serving the channel from %s failed", channel.remote_address)
        finally:
            await channel.close()


class CarriedChannel:
    """A channel over a carrier, in clear; implements ports.Channel."""

    def __init__(self, carrier: Carrier, remote: NodeId) -> None:
        self.remote = remote
        self.remote_address = carrier.remote_address
        self.relayed_through = carrier.relayed_through
        self.send_deadline = SEND_DEADLINE_S
        self._carrier = carrier
        self._most = MAX_FRAME_BYTES
        self._order = asyncio.Lock()
        self._ending = ""

    async def send(self, frame: bytes) -> None:
        """Send one frame (see MemoryChannel.send)."""
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes passes {MAX_FRAME_BYTES}")
        try:
            async with asyncio.timeout(self.send_deadline), self._order:
                if self._ending:
                    raise self._closed()
                await self._carrier.send(_FRAME + frame)
        except TimeoutError as error:
            raise await self._break(f"did not read for {self.send_deadline:g} s") from error
        except ChannelClosed as error:
            raise await self._break("broke off") from error

    async def receive(self) -> bytes:
        """The next frame. Raises ChannelClosed."""
        try:
            wire = await self._carrier.receive()
        except ChannelClosed as error:
            raise await self._break("broke off") from error
        if wire == _FAREWELL:
            self._ending = self._ending or "closed the channel"
            raise self._closed()
        if len(wire) > self._most + len(_FRAME):
            raise await self._break(f"sent more than {self._most} bytes at once")
        return wire[1:]

    def narrow(self, most: int) -> None:
        """Take smaller frames only (see ports.Channel.narrow)."""
        self._most = most

    async def close(self) -> None:
        """Say farewell and end it; idempotent."""
        if not self._ending:
            self._ending = "is no longer connected: this side closed the channel"
            with contextlib.suppress(TimeoutError, ChannelClosed):
                async with asyncio.timeout(CLOSE_S), self._order:
                    await self._carrier.send(_FAREWELL)
        await self._carrier.close()

    async def _break(self, what: str) -> ChannelClosed:
        self._ending = self._ending or what
        await self._carrier.close()
        return self._closed()

    def _closed(self) -> ChannelClosed:
        return _closed(self)


class MemoryChannel:
    """One end of a channel; implements ports.Channel."""

    relayed_through: NodeId | None = None

    def __init__(
        self, owner: NodeId, remote: NodeId, address: str, register: dict[MemoryChannel, None]
    ) -> None:
        self.owner = owner
        self.remote = remote
        self.remote_address = address
        self.send_deadline = SEND_DEADLINE_S
        self._register = register
        self._most = MAX_FRAME_BYTES
        self._other = self
        self._inbox: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ending = ""

    def join(self, other: MemoryChannel) -> None:
        """Make two ends one channel."""
        self._other, other._other = other, self
        self._register.update({self: None, other: None})

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the other end's queue is full.

        Raises:
            ChannelClosed: it ended, or the frame was not taken within the deadline.
            ValueError: the frame passes MAX_FRAME_BYTES.
        """
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes passes {MAX_FRAME_BYTES}")
        try:
            async with asyncio.timeout(self.send_deadline):
                while not self._ending and len(self._other._inbox) >= QUEUE_FRAMES:
                    await self._wait()
        except TimeoutError as error:
            self._end(f"did not read for {self.send_deadline:g} s", "broke off")
            raise self._closed() from error
        if self._ending:
            raise self._closed()
        self._other._inbox.append(bytes(frame))
        self._other._wake()

    async def receive(self) -> bytes:
        """The next frame; what came before an orderly end is still given. Raises ChannelClosed."""
        while not self._inbox:
            if self._ending:
                raise self._closed()
            await self._wait()
        frame = self._inbox.popleft()
        self._other._wake()
        if len(frame) > self._most:
            self._end(f"sent more than {self._most} bytes at once", "broke off")
            self._inbox.clear()
            raise self._closed()
        return frame

    def narrow(self, most: int) -> None:
        """Take smaller frames only (see ports.Channel.narrow)."""
        self._most = most

    async def close(self) -> None:
        """End it; idempotent."""
        self._end("is no longer connected: this side closed the channel", "closed the channel")
        self._inbox.clear()

    def break_off(self) -> None:
        """End it without a farewell; frames on their way are lost."""
        self._end("broke off", "broke off")
        self._inbox.clear()
        self._other._inbox.clear()

    def _end(self, here: str, there: str) -> None:
        for channel, ending in ((self, here), (self._other, there)):
            channel._ending = channel._ending or ending
            channel._register.pop(channel, None)
            channel._wake()

    def _closed(self) -> ChannelClosed:
        return _closed(self)

    def _wake(self) -> None:
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _closed(channel: MemoryChannel | CarriedChannel) -> ChannelClosed:
    return ChannelClosed(
        f"node {short_text(channel.remote)} at {channel.remote_address} {channel._ending}"
    )


def _check(address: str, own: NodeId, remote: NodeId, expected: NodeId | None) -> None:
    if len(remote) != len(own):
        raise Unreachable(f"cannot use {address}: what answered is no node; check the address")
    if remote == own:
        raise Unreachable(f"cannot use {address}: the other end is this node itself")
    if expected is not None and remote != expected:
        raise Unreachable(
            f"cannot use {address}: node {short_text(remote)} answered, not "
            f"{short_text(expected)} as expected"
        )
