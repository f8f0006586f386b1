"""A network on which answers are audited, and hosts that lie in ways that look honest."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from diffuse_core.domain.decoding import DecodingParams, Drawn, SamplingParams
from diffuse_core.services.answer_log import AnswerLog
from diffuse_core.services.audit import Auditor
from diffuse_core.services.audit_desk import AuditDesk
from diffuse_core.services.generation import Generation
from diffuse_core.services.quarantine import QuarantineBook
from diffuse_core.services.route_choice import RouteChoice
from diffuse_core.services.session_terms import Asked
from diffuse_core.services.spot_plan import SpotPlan
from tests.services.stage_net import StageNet, read_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AsyncExitStack

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.view import Audited
    from diffuse_core.model_ports import StageResult, StageStep
    from diffuse_core.services.run import ClientRun
    from tests.services.stage_net import StageHost
    from tests.services.tiny_model import TinyModel

PARTS = ((0, 3), (3, 6), (6, 10))

Spoil = "Callable[[StageStep, StageResult], StageResult]"


class Memory:
    """Storage that ends with the test."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.blobs.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.blobs[name] = data

    def delete(self, name: str) -> None:
        self.blobs.pop(name, None)


class AuditNet(StageNet):
    """So many hosts for each third of the model, and a client that audits."""

    def __init__(self, stack: AsyncExitStack, tiny: TinyModel) -> None:
        super().__init__(stack, tiny)
        self.storage = Memory()
        self.book = QuarantineBook(self.storage, self.clock)
        self.answers = AuditDesk(self.desk)
        self.told: list[Audited] = []
        self.early: list[Audited] = []
        """What was told before the answer was complete."""

    @property
    def accusing(self) -> list[Audited]:
        """Those of what came after the answer that are of somebody's fault."""
        return [found for found in self.told if found.accuses]

    async def populate(self, copies: int) -> None:
        for start, end in PARTS:
            for _ in range(copies):
                await self.host(start, end)

    async def answer(
        self,
        prompt: Sequence[int],
        count: int,
        sampling: SamplingParams | None = None,
        *,
        chance: float = 1.0,
        before: Callable[[Generation], None] | None = None,
        at_end: Callable[[ClientRun], Awaitable[None]] | None = None,
        speculate: bool = True,
        seed: int = 1,
        until: int = 0,
    ) -> list[NodeId]:
        """Take an answer, and audit it; the nodes of its Route.

        After `until` tokens, if that is not 0, it is audited on the way.
        """
        rng = random.Random(seed)
        choice = RouteChoice(self, self.model, rng, None, quarantine=self.book)
        decoding = DecodingParams(count, sampling or SamplingParams())
        log = AnswerLog(prompt, decoding, self.model.shape.vocab)
        plan = SpotPlan(chance, self.model.shape.hidden, rng)
        asked = Asked(self.model.id, self.model.fingerprint, speculate, spots=plan.spots)
        generation = Generation(self.desk, choice, self.clock, log, asked, 5.0)
        auditor = Auditor(self.answers, choice, self.book, plan, log)
        try:
            await generation.open()
            if before is not None:
                before(generation)
            self.early = []
            await read_all(generation, until or count)
            if until:
                self.early = await self._on_the_way(generation, auditor, count - until)
            await auditor.pause()
            run = generation.run
            self.told = [found async for found in auditor.audit(run, auditor.due(run))]
            if at_end is not None:
                await at_end(generation.run)
            return [hop.node for hop in generation.run.route]
        finally:
            await auditor.pause()
            await generation.close()

    async def _on_the_way(
        self, generation: Generation, auditor: Auditor, left: int
    ) -> list[Audited]:
        """What an audit in the middle of an answer finds, which is then read to its end."""
        told = auditor.look(generation.run)
        await asyncio.wait([auditor._under_way])
        await read_all(generation, left)
        return told + auditor.look(generation.run)

    def by_part(self, part: tuple[int, int]) -> StageHost:
        return next(host for host in self.hosts if (host.part.start, host.part.end) == part)

    def by_id(self, node: bytes) -> StageHost:
        return next(host for host in self.hosts if host.id == node)


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Spoil:
    """Hidden states that are given otherwise than they were computed."""

    def spoil(_: StageStep, found: StageResult) -> StageResult:
        if found.hidden is None:
            return found
        rows = np.frombuffer(found.hidden.data, np.float32).reshape(found.hidden.shape)
        data = change(rows).astype(np.float32).tobytes()
        return msgspec.structs.replace(
            found, hidden=msgspec.structs.replace(found.hidden, data=data)
        )

    return spoil


def scaled(rows: np.ndarray) -> np.ndarray:
    """Twice as large, as no band would notice."""
    return rows * 2


def noisy(rows: np.ndarray) -> np.ndarray:
    """With 1 % of noise."""
    noise = np.random.default_rng(len(rows)).standard_normal(rows.shape)
    return rows + 0.01 * noise * np.sqrt(np.mean(rows**2, axis=1, keepdims=True))


def swapped(rows: np.ndarray) -> np.ndarray:
    """As if of another prompt."""
    return np.roll(rows, 7, axis=1)


def another_token(_: StageStep, found: StageResult) -> StageResult:
    """Draws what the model would hardly say."""
    drawn = tuple(Drawn((one.token + 7) % 90) for one in found.drawn[:1])
    return msgspec.structs.replace(found, drawn=drawn)
