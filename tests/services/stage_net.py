"""Stages over memory channels without gossip: who holds which layers is written down.

Each host counts the rows it computes and can be broken in many ways, at any row.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import Holding, Load, ModelRef, Record
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Healed, Waiting
from diffuse_core.errors import Refused, Unreachable
from diffuse_core.services.answer_log import AnswerLog
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.generation import Generation
from diffuse_core.services.links import Links
from diffuse_core.services.route_choice import RouteChoice
from diffuse_core.services.session_desk import SessionDesk
from diffuse_core.services.session_terms import Asked
from diffuse_core.services.stage import StageService
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack

    from diffuse_core.adapters.memory_transport import MemoryTransport
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.model_ports import Executor, LongPass, StageResult, StageStep
    from diffuse_core.ports import Channel, Clock, Transport
    from tests.services.tiny_model import TinyModel

BUDGET = 2**26
THIRDS = ((0, 4), (4, 7), (7, 10))
Outcome = "StageResult | Refused | None"


class CountingExecutor:
    """The real executor, which counts rows and lets a test spoil what comes of them."""

    guessed = 0
    """Rows that ran ahead of what was known."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.rows: Counter[int] = Counter()
        """How often the row of each position was computed."""
        self.at_row: dict[int, Callable[[], object]] = {}
        """What to do when a row of this position, or a later one, was computed; once."""
        self.spoil: Callable[[StageStep, StageResult], StageResult | Refused] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        found = self._inner.run(steps)
        return [self.note(step, one) for step, one in zip(steps, found, strict=True)]

    def start(self, step: StageStep) -> CountingPass:
        return CountingPass(self, step, self._inner.start(step))

    def note(self, step: StageStep, found: StageResult | Refused) -> StageResult | Refused:
        if isinstance(found, Refused):
            return found
        count = len(step.tokens) if step.tokens is not None else step.hidden.shape[0]
        end = step.position + count
        self.rows.update(range(step.position, end))
        self.guessed += len(step.drafts)
        for row in [row for row in self.at_row if row < end]:
            self.at_row.pop(row)()
        return found if self.spoil is None else self.spoil(step, found)


class CountingPass:
    def __init__(self, executor: CountingExecutor, step: StageStep, inner: LongPass) -> None:
        self._executor, self._step, self._inner = executor, step, inner

    def advance(self, seconds: float) -> StageResult | Refused | None:
        found = self._inner.advance(seconds)
        return None if found is None else self._executor.note(self._step, found)


class StageHost:
    """A node that holds a slice."""

    def __init__(self, net: StageNet, part: Slice) -> None:
        self.net = net
        self.part = part
        self.identity = Identity(bytes([next(net.seeds)]) * 32)
        self.id: NodeId = self.identity.node
        self.transport = net.transport(self.id)
        self.links = Links(self.transport, self.id)
        self.clock = net.clock
        self.compute = net.compute()
        self.executor = CountingExecutor(net.loaded(part))
        self.stage = StageService(
            self.id, self.links, self.clock, self.compute, self.executor, net.model, BUDGET
        )
        self.address = ""
        self.alive = True

    async def start(self) -> None:
        self._listener = await self.transport.listen("mem", 0, self.links.accept)
        self.address = self._listener.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it says that it is met."""
        return (self.address,)

    async def stop(self) -> None:
        if self.alive:
            await self._listener.close()
        await self.stage.close()
        await self.links.close()
        self.compute.close()

    def kill(self) -> None:
        """As SIGKILL: every link ends, nobody listens any more."""
        if self.alive:
            self.alive = False
            self.net.memory.kill(self.address)
            self.net.members_.pop(self.id, None)

    def freeze(self) -> None:
        """As SIGSTOP or a blackhole: links stand, and nothing comes over them."""
        self.alive = False
        self.net.frozen.add(self.address)
        self.links._handlers.clear()
        for links in self.links.linked().values():
            for link in links:
                link.send = swallow

    def cut(self) -> None:
        """All its links end, and it is reached by nobody; it lives, and others do not know."""
        self.alive = False
        for other in self.net.nodes - {self.id}:
            self.net.memory.cut(self.id, other)

    @property
    def is_up(self) -> bool:
        """Whether the machine runs, be it reached or not."""
        return self.address in self.net.memory._listeners and self.address not in self.net.frozen

    def soon(self, act: Callable[[], object]) -> Callable[[], object]:
        """`act` in the event loop, whichever thread calls."""
        loop = asyncio.get_running_loop()
        return lambda: loop.call_soon_threadsafe(act)

    def member(self) -> Member:
        holding = Holding(self.net.model, self.part, "ready")
        record = Record(
            self.id, 1, "host", "test", self.addresses, BUDGET, holding, Load(kv_budget=BUDGET)
        )
        return Member(record=record, liveness="alive", heard_at=0.0)


async def in_thirds(stack: AsyncExitStack, tiny: TinyModel, replicas: int) -> StageNet:
    """A network with so many hosts of each third of the model."""
    net = StageNet(stack, tiny)
    for start, end in THIRDS * replicas:
        await net.host(start, end)
    return net


async def swallow(*_: object) -> None:
    """Send nothing."""


class FrostyTransport:
    """A transport over which machines that are frozen take a connection, and no more."""

    def __init__(self, inner: MemoryTransport, frozen: set[str]) -> None:
        self._inner = inner
        self._frozen = frozen
        self.unheard: set[str] = set()
        """More of them, as far as this node can tell."""
        self.listen, self.secure = inner.listen, inner.secure

    async def dial(self, address: str, expected: NodeId | None, seconds: float) -> Channel:
        if address not in self._frozen | self.unheard:
            return await self._inner.dial(address, expected, seconds)
        await asyncio.sleep(seconds)
        raise Unreachable(f"no answer from {address} within {seconds:g} s") from TimeoutError()


class StageNet:
    """Hosts, and a client that knows them; implements services.directory.Directory."""

    def __init__(
        self,
        stack: AsyncExitStack,
        tiny: TinyModel,
        clock: Clock | None = None,
        compute: Callable[[], ComputeThread] = ComputeThread,
        spare: dict[object, Executor] | None = None,
    ) -> None:
        """`spare` has executors of networks before it, which are free, and gets those of this."""
        source = DirectorySource(tiny.path)
        self.tiny = tiny
        self.stack = stack
        self.memory = MemoryNetwork()
        self.seeds = iter(range(1, 200))
        self.model = ModelRef("tiny", "f" * 64, "fp32", source.shape("fp32"), "0" * 64)
        self.hosts: list[StageHost] = []
        self.members_: dict[NodeId, Member] = {}
        self.clock = SystemClock() if clock is None else clock
        self.compute = compute
        self._spare = {} if spare is None else spare
        self.frozen: set[str] = set()
        """Addresses of frozen machines."""
        self.id = Identity(b"c" * 32).node
        self.nodes = {self.id}
        self.links = Links(self.transport(self.id))
        self.desk = SessionDesk(self.links)
        stack.push_async_callback(self.desk.tasks.close)
        stack.push_async_callback(self.links.close)

    def loaded(self, part: Slice) -> Executor:
        """An executor of a slice, for the next host of it."""
        key = self.tiny.path, part, sum(host.part == part for host in self.hosts)
        if key not in self._spare:
            source = DirectorySource(self.tiny.path)
            self._spare[key] = load_slice(source, part, "fp32", lambda _: None)
        return self._spare[key]

    def transport(self, node: NodeId) -> Transport:
        """That of one of its nodes."""
        return CircuitTransport(FrostyTransport(self.memory.transport(node), self.frozen), node)

    async def host(
        self, start: int, end: int, kind: Callable[[StageNet, Slice], StageHost] = StageHost
    ) -> StageHost:
        host = kind(self, Slice(start, end))
        self.nodes.add(host.id)
        await host.start()
        self.stack.push_async_callback(host.stop)
        self.hosts.append(host)
        self.members_[host.id] = host.member()
        return host

    def on(self, generation: Generation, index: int) -> StageHost:
        """The host of a Stage of its Route."""
        node = generation._run.route[index].node
        return next(host for host in self.hosts if host.id == node)

    def generation(
        self,
        prompt: Sequence[int],
        count: int,
        sampling: SamplingParams,
        *,
        grace_s: float = 5.0,
        speculate: bool = False,
    ) -> Generation:
        choice = RouteChoice(self, self.model, random.Random(1), None)
        log = AnswerLog(prompt, DecodingParams(count, sampling), self.model.shape.vocab)
        asked = Asked(self.model.id, self.model.fingerprint, speculate)
        return Generation(self.desk, choice, self.clock, log, asked, grace_s)

    async def idle(self) -> None:
        """Wait until no host that lives holds anything of a Session."""
        for host in self.hosts:
            if host.alive:
                await until(lambda host=host: host.stage.sessions == 0)
                assert host.stage.kv_used == 0

    # --- what a client knows ------------------------------------------------------------

    def members(self) -> tuple[Member, ...]:
        return tuple(self.members_.values())

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        member = self.members_.get(node)
        return member.record.addresses if member else ()

    def suspect(self, node: NodeId) -> None:
        self.members_.pop(node, None)

    async def look_again(self) -> None:
        for host in self.hosts:
            if host.alive:
                self.members_[host.id] = host.member()

    def view(self) -> NetworkView:
        raise NotImplementedError


def with_nan(_: StageStep, found: StageResult) -> StageResult | Refused:
    """What a broken machine gives: numbers that are none."""
    if found.hidden is None:
        return Refused("the model gave logits that are not finite", "lost")
    data = np.full(found.hidden.shape, np.nan, np.float32).tobytes()
    return msgspec.structs.replace(found, hidden=msgspec.structs.replace(found.hidden, data=data))


def refusing(_: StageStep, __: StageResult) -> Refused:
    """What an executor says that can compute no more."""
    return Refused("the device is gone", "lost")


async def read_all(
    generation: Generation,
    count: int,
    at: dict[int, Callable[[], object]] | None = None,
    waits: list[Waiting] | None = None,
) -> tuple[list[int], list[Healed]]:
    """Read an answer of `count` tokens to its end; at so many tokens something happens.

    What is waited for goes into `waits`.
    """
    tokens: list[int] = []
    waits = [] if waits is None else waits
    healed: list[Healed] = []
    at = at or {}
    while len(tokens) < count:
        event = await generation.next()
        if isinstance(event, Healed):
            healed.append(event)
            continue
        if isinstance(event, Waiting):
            waits.append(event)
            continue
        for token in event.tokens:
            tokens.append(token)
            if len(tokens) in at:
                at.pop(len(tokens))()
    return tokens, healed
