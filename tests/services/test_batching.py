"""Many sessions at once get what each gets alone, to the last bit, and fail alone."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.session import PREFILL_ROWS, WINDOW_ROWS
from diffuse_core.domain.view import GenerateRequest, TextDelta
from diffuse_core.errors import Refused, StagesLost
from diffuse_core.model_ports import Tensor
from diffuse_core.services.lane import SHORT_ROWS, is_short, rows_of
from tests.greedy import last_token
from tests.services.cluster import Cluster
from tests.services.tiny_model import make_tiny_model, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import LongPass, StageResult, StageStep
    from diffuse_core.services.client import ClientService
    from tests.services.tiny_model import TinyModel

LENGTHS = (1, 3, 8, 9, 40, PREFILL_ROWS + 1, 2 * PREFILL_ROWS + 44, 3 * PREFILL_ROWS + 37)
AHEAD_ROWS = WINDOW_ROWS + 3 * PREFILL_ROWS
"""What a Stage runs while the next one runs nothing: the window, and what waits to be sent."""
LONG = AHEAD_ROWS + 2 * PREFILL_ROWS + 9
CAPS = {1: (None,), 2: (5, 5), 3: (4, 3, 3)}
"""Slices that do not overlap, so that routes are always cut in the same places."""
POISON_AFTER = 5
NAN = b"\0\0\xc0\x7f"


@pytest.fixture(scope="session")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """The tiny model, made for long prompts."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", LONG + 500)


def ask(at: int, length: int, count: int = 16) -> GenerateRequest:
    """Half of them sampled: what is drawn from the middle of a distribution shows more."""
    sampling = SamplingParams(temperature=1.0, seed=at) if at % 2 else SamplingParams()
    return GenerateRequest(
        model="tiny", raw=words(length, at), max_tokens=count, ignore_eos=True, sampling=sampling
    )


class Watched:
    """The real executor, and what passed through it."""

    def __init__(self, *given: object) -> None:
        self._inner = load_slice(*given)
        self.widths: list[int] = []
        self.bits = 0
        self.given: dict[bytes, list[bytes]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def note(self, step: StageStep, outcome: StageResult | Refused | None) -> None:
        if outcome is not None and not isinstance(outcome, Refused):
            made = b"" if outcome.hidden is None else bytes(outcome.hidden.data)
            self.given.setdefault(step.session, []).append(
                made + repr(last_token(outcome)).encode()
            )

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        self.widths.append(len(steps))
        assert all(map(is_short, steps))
        outcomes = self._inner.run(steps)
        for step, outcome in zip(steps, outcomes, strict=True):
            self.note(step, outcome)
        return outcomes

    def start(self, step: StageStep) -> WatchedPass:
        assert SHORT_ROWS < rows_of(step) <= PREFILL_ROWS
        return WatchedPass(self, step, self._inner.start(step))

    def all_bits(self) -> set[bytes]:
        """What each session was given here, whatever its id was."""
        return {b"|".join(given) for given in self.given.values()}


class WatchedPass:
    def __init__(self, executor: Watched, step: StageStep, inner: LongPass) -> None:
        self._executor = executor
        self._step = step
        self._inner = inner

    def advance(self, seconds: float) -> StageResult | Refused | None:
        self._executor.bits += 1
        outcome = self._inner.advance(seconds)
        self._executor.note(self._step, outcome)
        return outcome


async def say(client: ClientService, at: int, length: int) -> tuple[int, ...]:
    return (await client.whole(ask(at, length)))[1]


@pytest.mark.slow
@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@pytest.mark.parametrize("stages", [1, 2, 3])
async def test_sessions_at_once_get_to_the_bit_what_they_get_alone(
    stack: AsyncExitStack, roomy: TinyModel, tmp_path: Path, stages: int, contract: str
) -> None:
    cluster = Cluster(stack, roomy, tmp_path)
    cluster.contract = contract
    for cap in CAPS[stages]:
        await cluster.host(cap, load=Watched)
    clients = [await cluster.client() for _ in range(2)]
    asked = list(enumerate(LENGTHS))
    alone = [await say(clients[0], at, length) for at, length in asked]
    executors = [host.executors[0] for host in cluster.hosts]
    before = [executor.all_bits() for executor in executors]
    assert [len(bits) for bits in before] == [len(asked)] * stages
    assert all(set(executor.widths) == {1} for executor in executors)
    for executor in executors:
        executor.given.clear()
    for _ in range(3):
        together = await asyncio.gather(
            *(say(clients[at % 2], at, length) for at, length in asked)
        )
        assert together == alone
    assert max(executors[0].widths) > 2
    assert all(executor.bits > 0 for executor in executors)
    for executor, bits in zip(executors, before, strict=True):
        if contract == "fp32":
            assert executor.all_bits() == bits
    for host in cluster.hosts:
        await host.idle()


class Poisoner(Watched):
    """Spoils what it sends on, in all sessions but those in `well`, once that is set."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.well: frozenset[bytes] | None = None

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        return [
            outcome if self.well is None or step.session in self.well else self._spoil(outcome)
            for step, outcome in zip(steps, super().run(steps), strict=True)
        ]

    def _spoil(self, result: StageResult) -> StageResult:
        hidden = result.hidden
        return msgspec.structs.replace(
            result, hidden=Tensor(hidden.dtype, hidden.shape, NAN * (len(hidden.data) // 4))
        )


async def tokens_until(
    client: ClientService, request: GenerateRequest, told: list[int]
) -> tuple[int, ...]:
    async with aclosing(client.generate(request)) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                told.extend(event.token_ids)
    return tuple(told)


@pytest.mark.slow
async def test_a_poisoned_session_fails_alone_and_names_who_poisoned_it(
    stack: AsyncExitStack, roomy: TinyModel, tmp_path: Path
) -> None:
    cluster = Cluster(stack, roomy, tmp_path)
    for _ in range(2):
        await cluster.host(5, load=Poisoner)
    first, last = sorted(cluster.hosts, key=lambda host: host.service.slice)
    client, other = await cluster.client(), await cluster.client()
    asked = list(enumerate(LENGTHS))
    alone = [await say(other, at, length) for at, length in asked]
    told: list[int] = []
    doomed = asyncio.create_task(tokens_until(client, ask(0, 13, 500), told))
    await until(lambda: len(told) >= POISON_AFTER)
    (session,) = first.service.stage._runs
    rest = [asyncio.create_task(say(other, at, length)) for at, length in asked]
    await until(lambda: len(first.service.stage._runs) == len(asked) + 1)
    # Sessions that take its place are spoiled, too.
    first.executors[0].well = frozenset(first.service.stage._runs) - {session}
    with pytest.raises(StagesLost, match=f"stage {first.id.hex()[:8]} .*failed: .*NaN"):
        await doomed
    assert [await task for task in rest] == alone
    assert max(last.executors[0].widths) > 1
    for host in cluster.hosts:
        await host.idle()


class Failing(Watched):
    """Its own numbers fail, from its third short pass on; unless it is sound."""

    sound = False

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        outcomes = super().run(steps)
        if len(self.widths) >= 3 and not self.sound:
            self.close(steps[0].session)
            return [Refused("computed NaN", "lost"), *outcomes[1:]]
        return outcomes


async def test_a_stage_whose_own_numbers_fail_blames_itself(
    stack: AsyncExitStack, roomy: TinyModel, tmp_path: Path
) -> None:
    cluster = Cluster(stack, roomy, tmp_path)
    for _ in range(2):
        await cluster.host(5, load=Failing)
    last = max(cluster.hosts, key=lambda host: host.service.slice)
    first = min(cluster.hosts, key=lambda host: host.service.slice)
    first.executors[0].sound = True
    client = await cluster.client()
    with pytest.raises(StagesLost, match=f"stage {last.id.hex()[:8]}.* failed: computed NaN"):
        await client.whole(ask(0, 13))
    for host in cluster.hosts:
        await host.idle()


class Held(Watched):
    """Its passes wait until they may."""

    def __init__(self, source: object, part: Slice, *given: object) -> None:
        super().__init__(source, part, *given)
        self.may = threading.Event()
        if part.start == 0:
            self.may.set()

    def start(self, step: StageStep) -> WatchedPass:
        assert self.may.wait(10)
        return super().start(step)


async def test_a_long_prompt_waits_where_it_is_ids_for_a_slow_stage(
    stack: AsyncExitStack, roomy: TinyModel, tmp_path: Path
) -> None:
    cluster = Cluster(stack, roomy, tmp_path)
    for _ in range(2):
        await cluster.host(5, load=Held)
    first, last = sorted(cluster.hosts, key=lambda host: host.service.slice)
    client = await cluster.client()
    asked = asyncio.create_task(client.whole(ask(0, LONG, 4)))
    await until(lambda: last.service.stage.sessions == 1)
    (state,) = (run.state for run in last.service.stage._runs.values())
    await until(lambda: state.received == WINDOW_ROWS)
    # It runs on by what waits to be sent, and no further.
    await until(lambda: first.rows() == AHEAD_ROWS)
    for host in 3 * cluster.hosts:
        await host.node.links.to(last.id, (last.address,))
        await first.compute.run(lambda: None)
    assert (state.received, first.rows()) == (WINDOW_ROWS, AHEAD_ROWS)
    last.executors[0].may.set()
    slow = (await asked)[1]
    assert slow == (await client.whole(ask(0, LONG, 4)))[1]
    for host in cluster.hosts:
        await host.idle()
