"""A client that is led by hand: a test says when it feeds, grants, reroutes and resumes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardTokens,
    Hop,
    OpenSession,
    Reroute,
    Rerouted,
    Resume,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
    WatchSession,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.services.links import Link, Links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.errors import Refused
    from diffuse_core.model_ports import LongPass, StageResult, StageStep
    from tests.services.cluster import Cluster, Host

PARTS = {1: (Slice(0, 10),), 3: (Slice(0, 4), Slice(4, 7), Slice(7, 10))}
SESSION = b"hand" * 4
HEARD = (
    SessionOpened, SessionRefused, SessionFailed, TokensDrawn, Rerouted, SessionAlive,
)  # fmt: skip


class Counted:
    """The real executor, and which rows it ran, in order."""

    def __init__(self, real: object) -> None:
        self.real = real
        self.rows: list[int] = []
        self.steps: list[StageStep] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        for step in steps:
            self._note(step)
        return self.real.run(steps)

    def start(self, step: StageStep) -> LongPass:
        self._note(step)
        return self.real.start(step)

    def _note(self, step: StageStep) -> None:
        rows = len(step.tokens) if step.tokens is not None else step.hidden.shape[0]
        self.steps.append(step)
        self.rows.extend(range(step.position, step.position + rows))


class HandClient:
    """One session over hosts that hold the whole model, each of which runs a part of it."""

    def __init__(self, cluster: Cluster, prompt: Sequence[int], **wish: object) -> None:
        identity = cluster.identity()
        self.id = identity.node
        self.links = Links(cluster.transport(identity), self.id)
        self.prompt = tuple(prompt)
        self.tokens: list[int] = []
        self.finish: str | None = None
        self.epoch = 0
        self.hosts: list[Host] = []
        sampling = wish.get("sampling", SamplingParams())
        self.decoding = DecodingParams(wish.get("max_tokens", 30), sampling)
        self.budget = len(prompt) + self.decoding.max_tokens + 1
        self.credits = wish.get("credits", 64)
        self.drafts = wish.get("drafts", 0)
        self.told: list[TokensDrawn] = []
        self.answers: asyncio.Queue[tuple[Link, AnyMessage]] = asyncio.Queue()
        for kind in HEARD:
            self.links.handle(kind, self._hear)
        cluster.stack.push_async_callback(self.links.close)

    async def _hear(self, link: Link, message: AnyMessage, _body: memoryview) -> None:
        if isinstance(message, TokensDrawn):
            at = message.position - len(self.prompt)
            assert at == len(self.tokens), (message, self.tokens)
            self.tokens.extend(message.tokens)
            self.finish = message.finish
            self.told.append(message)
        else:
            self.answers.put_nowait((link, message))

    async def to(self, host: Host) -> Link:
        return await self.links.to(host.id, (host.address,))

    async def send(self, host: Host, message: AnyMessage, body: bytes = b"") -> None:
        await (await self.to(host)).send(message, body)

    async def answer(self, kind: type) -> AnyMessage:
        """The next answer of a kind; others are dropped, but a failure is one."""
        async with asyncio.timeout(10):
            while True:
                _, message = await self.answers.get()
                if isinstance(message, kind):
                    return message

    @property
    def route(self) -> tuple[Hop, ...]:
        parts = PARTS[len(self.hosts)]
        return tuple(
            Hop(host.id, (host.address,), part)
            for host, part in zip(self.hosts, parts, strict=True)
        )

    def opening(self, host: Host) -> OpenSession:
        return OpenSession(
            SESSION,
            "tiny",
            host.service.model.fingerprint,
            self.route,
            self.hosts.index(host),
            self.budget,
            len(self.prompt),
            self.decoding,
            self.credits,
            self.epoch,
            len(self.tokens),
        )

    async def open(self, hosts: Sequence[Host]) -> None:
        self.hosts = list(hosts)
        for host in hosts:
            await self.send(host, self.opening(host))
        able = [(await self.answer(SessionOpened)).drafts for _ in hosts]
        self.drafts = min(self.drafts, *able)
        await self.send(hosts[0], Resume(SESSION, 0, 0, self.drafts))

    async def feed(self, start: int, end: int) -> None:
        """Send the first stage the tokens of these positions, prompt and answer apart."""
        count = len(self.prompt)
        known = (*self.prompt, *self.tokens)
        for begin, stop in ((start, min(end, count)), (max(start, count), end)):
            if begin < stop:
                fed = ForwardTokens(SESSION, begin, known[begin:stop], self.epoch)
                await self.send(self.hosts[0], fed)

    async def grant(self, tokens: int) -> None:
        await self.send(self.hosts[-1], Credit(SESSION, tokens))

    async def alive(self, host: Host) -> SessionAlive:
        await self.send(host, WatchSession(SESSION))
        return await self.answer(SessionAlive)

    async def reroute(self, hosts: Sequence[Host]) -> dict[Host, int]:
        """Lead the session along another route; what each stage holds."""
        survivors = set(self.hosts)
        self.hosts, self.epoch = list(hosts), self.epoch + 1
        by_id = {host.id: host for host in hosts}
        held = dict.fromkeys(hosts, 0)
        for index, host in enumerate(hosts):
            if host in survivors:
                # The others forget nothing when the last stage stays.
                stays = host is not hosts[-1] and hosts[-1] in survivors
                drawn = self.decoding.max_tokens if stays else len(self.tokens)
                again = Reroute(SESSION, self.epoch, self.route, index, drawn)
                await self.send(host, again)
            else:
                await self.send(host, self.opening(host))
        async with asyncio.timeout(10):
            waiting = set(by_id)
            while waiting:
                link, message = await self.answers.get()
                if isinstance(message, Rerouted | SessionOpened) and message.epoch == self.epoch:
                    waiting.discard(link.remote)
                    if isinstance(message, Rerouted):
                        held[by_id[link.remote]] = message.held
        return held

    async def resume(self, held: dict[Host, int]) -> None:
        """Let all send on, and feed the first stage what it lacks."""
        for host, after in zip(self.hosts, (*self.hosts[1:], self.hosts[0]), strict=True):
            await self.send(host, Resume(SESSION, self.epoch, held[after], self.drafts))
        await self.feed(held[self.hosts[0]], len(self.prompt) + len(self.tokens))

    async def close(self) -> None:
        for host in self.hosts:
            await self.send(host, CloseSession(SESSION))
