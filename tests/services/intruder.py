"""A node that speaks the protocol, but sends what it likes; an honest session beside it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.messages import (
    ForwardHidden,
    Hop,
    OpenSession,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
)
from diffuse_core.domain.session import common_name
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import GenerateRequest, TextDelta
from diffuse_core.services.links import Link, Links
from tests.services.tiny_model import LAYERS, ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.services.stage_run import StageRun
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

CREDITS = 8
WIDTH = 32
SESSION = b"h" * 16


class Intruder:
    """A node that speaks the protocol, but sends what it likes."""

    def __init__(self, cluster: Cluster) -> None:
        identity = cluster.identity()
        self.id = identity.node
        self.links = Links(cluster.transport(identity), self.id)
        self.cluster = cluster
        self.answers: asyncio.Queue[AnyMessage] = asyncio.Queue()
        for kind in (SessionOpened, SessionRefused, SessionFailed, TokensDrawn):
            self.links.handle(kind, self._hear)
        cluster.stack.push_async_callback(self.links.close)

    async def _hear(self, _link: Link, message: AnyMessage, _body: memoryview) -> None:
        self.answers.put_nowait(message)

    async def to(self, host: Host) -> Link:
        return await self.links.to(host.id, (host.address,))

    async def answer(self) -> AnyMessage:
        async with asyncio.timeout(10):
            return await self.answers.get()

    async def heard(self, host: Host) -> None:
        """Wait until the host has read all that we sent: it answers in order."""
        link = await self.to(host)
        await link.send(self.opening(host, session=b"?" * 16, fingerprint="0" * 64))
        answer = await self.answer()
        assert isinstance(answer, SessionRefused)
        assert answer.session == b"?" * 16

    def opening(self, host: Host, **changes: object) -> OpenSession:
        """A sound request for a session through the host's slice, with changes."""
        part = host.service.slice
        route = [Hop(host.id, (host.address,), part)]
        if part.start > 0:
            route.insert(0, Hop(self.id, (), Slice(0, part.start)))
        if part.end < LAYERS:
            route.append(Hop(self.id, (), Slice(part.end, LAYERS)))
        sound = OpenSession(
            SESSION,
            "tiny",
            host.service.model.fingerprint,
            tuple(route),
            0 if part.start == 0 else 1,
            40,
            5,
            DecodingParams(20),
            20,
        )
        return msgspec.structs.replace(sound, **changes)

    def named(
        self, message: AnyMessage, body: bytes = b"", *, client: bytes = b""
    ) -> tuple[AnyMessage, bytes]:
        """What a stage would send of our own session, or of another client's."""
        name = common_name(client or self.id, message.session)
        return msgspec.structs.replace(message, session=name), body

    def run_on(self, host: Host) -> StageRun:
        """Our session there."""
        return host.service.stage._runs[common_name(self.id, SESSION)]

    async def open(self, host: Host, **changes: object) -> Link:
        link = await self.to(host)
        await link.send(self.opening(host, **changes))
        answer = await self.answer()
        assert isinstance(answer, SessionOpened), answer
        return link


def hidden(
    rows: int,
    width: int = WIDTH,
    *,
    position: int = 0,
    session: bytes = SESSION,
    number: float = 0.5,
    body: bytes | None = None,
    dtype: str = "fp32",
) -> tuple[ForwardHidden, bytes]:
    data = struct.pack("<f", number) * rows * width if body is None else body
    return ForwardHidden(session, position, rows), data


async def honest_session(pair: Cluster, tiny: TinyModel) -> AsyncIterator[bytes]:
    """The id of an honest session that waits for credit; it must end as if nothing had been."""
    client = await pair.client()
    request = GenerateRequest(model="tiny", raw=words(13), max_tokens=40, ignore_eos=True)
    async with aclosing(client.generate(request)) as stream:
        tokens: list[int] = []
        while not tokens:
            event = await anext(stream)
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
        states = [next(iter(host.service.stage._runs.values())).state for host in pair.hosts]
        await until(lambda: states[1].drawn == CREDITS)
        before = [(state.received, state.drawn) for state in states]
        yield states[0].id
        assert [(state.received, state.drawn) for state in states] == before
        async for event in stream:
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
    assert tuple(tokens) == tiny.says(ids(13), 40, ignore_eos=True)
    for host in pair.hosts:
        await host.idle()
