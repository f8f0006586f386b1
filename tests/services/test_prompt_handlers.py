"""Messages that are handled the moment they come out of the socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.codec import encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import CloseSession
from diffuse_core.services.links import Links
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from diffuse_core.services.links import Link

OWN = Identity(bytes([1]) * 32).node


class PushingChannel:
    """A channel that offers what comes before it is asked for."""

    remote = Identity(bytes([2]) * 32).node
    remote_address = "mem:2"
    relayed_through = None

    def __init__(self) -> None:
        self.take: Callable[[bytes], bool] = lambda _frame: False
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()

    def hear(self, take: Callable[[bytes], bool]) -> None:
        self.take = take

    def bring(self, frame: bytes) -> None:
        if not self.take(frame):
            self.frames.put_nowait(frame)

    async def receive(self) -> bytes:
        return await self.frames.get()

    async def close(self) -> None:
        self.bring(b"")


async def test_prompt_handlers_come_first_and_leave_to_others_what_they_do_not_take(
    stack: AsyncExitStack,
) -> None:
    channel, taken, came = PushingChannel(), [], []
    links = Links(MemoryNetwork().transport(OWN), OWN)
    stack.push_async_callback(links.close)

    async def hear(link: Link, message: CloseSession, _body: memoryview) -> None:
        came.append((link, message))

    def take_odd(link: Link, message: CloseSession, _body: memoryview) -> bool:
        if message.session[0] % 2:
            taken.append((link, message))
        return bool(message.session[0] % 2)

    links.handle(CloseSession, hear)
    links.handle_promptly(CloseSession, take_odd)
    serving = asyncio.ensure_future(links.accept(channel))
    await until(lambda: channel.remote in links.linked())
    (link,) = links.linked()[channel.remote]
    messages = [CloseSession(bytes([number]) * 16) for number in range(4)]
    for message in messages:
        channel.bring(encode(message))
    assert taken == [(link, messages[1]), (link, messages[3])]
    await until(lambda: len(came) == 2)
    assert came == [(link, messages[0]), (link, messages[2])]
    assert link.heard == 4
    assert links.traffic.bytes_in == sum(len(encode(message)) for message in messages)
    links.unhandle(CloseSession)
    channel.bring(encode(messages[1]))
    await until(lambda: link.heard == 5)
    assert len(taken) == len(came) == 2
    channel.bring(b"nonsense")
    await serving
    assert link.closed
    channel.bring(encode(messages[1]))
    assert len(taken) == 2
