"""What sessions take is what was counted for them, or less: whatever is done with them."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain import session_memory
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.draws import REMEMBERED
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.kept import REGROUPED_ROWS
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    Hop,
    OpenSession,
    Resume,
    RowsRun,
)
from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.session import PREFILL_ROWS, WINDOW_ROWS, common_name
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.model_ports import StageResult, Tensor
from diffuse_core.services import stage_pace
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.lane import rows_of
from diffuse_core.services.link import Link, Traffic
from diffuse_core.services.links import Links
from diffuse_core.services.loopback import loopback
from diffuse_core.services.scheduler import MAX_STEPS
from diffuse_core.services.stage import StageService
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.model_ports import LongPass, StageStep

OWN, BEFORE, AFTER, CLIENT = (NodeId(bytes([number]) * 32) for number in (1, 2, 3, 4))
WIDTH, VOCAB, CONTEXT, LAYERS = 32, 50_000, 4096, 3
SHAPE = ModelShape(LAYERS, WIDTH, VOCAB, CONTEXT, 1, 1, 1, kv_bytes=0)
MODEL = ModelRef("m", "0" * 64, "fp32", SHAPE, "1" * 64)
SESSIONS = 3
PARTS = {"first": 0, "middle": 1, "last": 2}


def test_what_is_reckoned_with_is_what_is_so_elsewhere() -> None:
    assert session_memory.PIECE_ROWS == PREFILL_ROWS
    assert session_memory.CHUNK_ROWS == REGROUPED_ROWS
    assert session_memory.WAITING_ROWS == WINDOW_ROWS
    assert session_memory.WAITING_STEPS == MAX_STEPS
    assert session_memory.TOLD_AGAIN == REMEMBERED


class DeafLink(Link):
    """What is sent over it is gone."""

    def __init__(self, node: NodeId) -> None:
        super().__init__(loopback(node)[0], Traffic(), dialled=True)

    async def send(self, message: AnyMessage, body: bytes | memoryview = b"") -> None:
        pass

    def idle(self, *_: object) -> bool:
        return True

    def send_now(self, *_: object, **__: object) -> None:
        pass


class Pretend:
    """An executor whose passes wait until they are let, and give something."""

    slice = Slice(0, LAYERS)
    weight_bytes = 1
    rows_alone = 32

    def __init__(self) -> None:
        self.let = threading.Event()

    def open(self, session: bytes, part: Slice, budget: int) -> None:
        pass

    def close(self, session: bytes) -> None:
        pass

    def run(self, steps: Sequence[StageStep]) -> list[StageResult]:
        self.let.wait(20)
        return [self._result(step) for step in steps]

    def start(self, step: StageStep) -> LongPass:
        self.let.wait(20)
        return Whole(self._result(step))

    def _result(self, step: StageStep) -> StageResult:
        if step.chooser is not None:
            place = (step.position * 7919) % VOCAB
            logits = np.linspace(0.0, 1.0, VOCAB, dtype=np.float32)[None, :].copy()
            logits[0, place] = 90.0
            return StageResult(None, step.chooser.choose(logits, step.position + 1, ()), 0.0)
        rows = rows_of(step)
        return StageResult(Tensor("fp32", (rows, WIDTH), bytes(4 * rows * WIDTH)), (), 0.0)


class Whole:
    def __init__(self, result: StageResult) -> None:
        self._result = result

    def advance(self, _seconds: float) -> StageResult:
        return self._result


class Bench:
    """A Stage at one place of a Route, and what its neighbours send."""

    def __init__(self, stage: StageService, executor: Pretend, place: str) -> None:
        self.stage = stage
        self.executor = executor
        self.index = PARTS[place]
        nodes = [BEFORE, BEFORE, AFTER]
        nodes[self.index] = OWN
        nodes[2 if self.index < 2 else 0] = AFTER
        self.route = tuple(Hop(node, (), Slice(at, at + 1)) for at, node in enumerate(nodes))
        self.client, self.before, self.after = map(DeafLink, (CLIENT, BEFORE, AFTER))
        self.names = [bytes([at]) * 16 for at in range(SESSIONS)]

        async def to(node: NodeId, *_: object) -> Link:
            return self.after

        stage._dials.to = to

    async def open(self, prompt: int, budget: int, **wishes: object) -> None:
        decoding = wishes.pop("decoding", DecodingParams(budget))
        for name in self.names:
            message = OpenSession(
                name, "m", MODEL.fingerprint, self.route, self.index, budget, prompt,
                decoding, 4096, **wishes,
            )  # fmt: skip
            await self.say(self.client, message)
        runs = self.stage._runs
        await until(lambda: len(runs) == SESSIONS)
        await until(lambda: all(not run._opening for run in runs.values()))

    async def say(self, link: Link, message: AnyMessage, body: bytes = b"") -> None:
        """Have a frame arrive, which is memory of its own."""
        heard, rest = decode(bytes(bytearray(encode(message, body))))
        await self.stage._links._handlers[type(heard)](link, heard, rest)

    async def rows(self, name: bytes, position: int, rows: int) -> None:
        message = ForwardHidden(common_name(CLIENT, name), position, rows)
        await self.say(self.before, message, bytes(4 * rows * WIDTH))

    async def prompt(self, name: bytes, prompt: int) -> None:
        for at in range(0, prompt, PREFILL_ROWS):
            await self.rows(name, at, min(PREFILL_ROWS, prompt - at))

    def ran(self, rows: int) -> bool:
        return all(run.state.ran >= rows for run in self.stage._runs.values())


@asynccontextmanager
async def bench(place: str) -> AsyncIterator[Bench]:
    executor, compute = Pretend(), ComputeThread()
    links = Links(MemoryNetwork().transport(OWN), OWN)
    stage = StageService(OWN, links, SystemClock(), compute, executor, MODEL, 2**30)
    made = Bench(stage, executor, place)
    await made.open(1, 2)
    for name in made.names:
        await made.say(made.client, CloseSession(name))
    gc.collect()
    tracemalloc.start()
    try:
        yield made
    finally:
        tracemalloc.stop()
        executor.let.set()
        await stage.close()
        await links.close()
        compute.close()


def check(made: Bench, share: float) -> None:
    """That they take what was counted, or less; and at least such a share, or it is no test."""
    gc.collect()
    taken, counted = tracemalloc.get_traced_memory()[0], made.stage.kv_used
    assert len(made.stage._runs) == SESSIONS
    assert share * counted <= taken <= counted, (taken // SESSIONS, counted // SESSIONS)


@pytest.fixture(autouse=True)
def _no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_pace, "PER_S", 1e9)


@pytest.mark.parametrize("biases", [0, 900])
@pytest.mark.parametrize("place", PARTS)
async def test_sessions_in_which_nothing_is_done(place: str, biases: int) -> None:
    async with bench(place) as made:
        bias = tuple((token, 1.0 + token) for token in range(biases))
        decoding = DecodingParams(60, SamplingParams(logit_bias=bias))
        await made.open(4, 8, decoding=decoding)
        check(made, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["middle", "last"])
async def test_a_flood_of_single_rows_that_wait(place: str) -> None:
    async with bench(place) as made:
        await made.open(1, 1400, drawn=1100)
        for name in made.names:
            await made.rows(name, 0, 1)
            for at in range(1, WINDOW_ROWS):
                await made.rows(name, at, 1)
        check(made, 0.5)


async def test_a_prompt_that_waits() -> None:
    async with bench("middle") as made:
        await made.open(WINDOW_ROWS, WINDOW_ROWS + 1)
        for name in made.names:
            await made.prompt(name, WINDOW_ROWS)
        check(made, 0.2)


@pytest.mark.slow
async def test_a_flood_of_tokens_that_wait_and_are_guessed_from() -> None:
    async with bench("first") as made:
        await made.open(1, 2000)
        for name in made.names:
            await made.say(made.client, Resume(name, 0, 0, 31))
            await made.say(made.client, ForwardTokens(name, 0, (1,)))
            for at in range(1, 1900):
                token = (at * 7919) % VOCAB
                ring = ForwardTokens(common_name(CLIENT, name), at, (token,))
                await made.say(made.after, ring)
        check(made, 0.4)


@pytest.mark.slow
async def test_what_is_kept_for_others() -> None:
    async with bench("middle") as made:
        rows = 1600
        await made.open(600, rows + 1)
        made.executor.let.set()
        for name in made.names:
            await made.prompt(name, 600)
        await until(lambda: made.ran(600))
        for at in range(600, rows):
            for name in made.names:
                await made.rows(name, at, 1)
                await made.say(made.after, RowsRun(common_name(CLIENT, name), 1))
            if at % 200 == 0:
                await until(lambda at=at: made.ran(at + 1))
        await until(lambda: made.ran(rows))
        assert all(run.outlet.kept_rows == rows for run in made.stage._runs.values())
        check(made, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("logprobs", [None, 20])
async def test_what_a_last_stage_remembers_of_its_draws(logprobs: int | None) -> None:
    async with bench("last") as made:
        sampling = SamplingParams(repetition_penalty=1.1)
        rows = 300
        decoding = DecodingParams(rows, sampling, logprobs=logprobs)
        await made.open(200, rows, decoding=decoding, seen=tuple(range(2000, 2200)))
        made.executor.let.set()
        for name in made.names:
            await made.prompt(name, 200)
        for at in range(200, rows - 1):
            await until(lambda at=at: made.ran(at))
            for name in made.names:
                await made.rows(name, at, 1)
                await made.say(made.client, Credit(name, 1))
        await until(lambda: made.ran(rows - 1))
        check(made, 0.1)
