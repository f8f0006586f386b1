"""What a Session that takes another's place computes is, bit for bit, what that one computed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import Finished, GenerateRequest, RouteChosen, TextDelta
from diffuse_core.errors import Refused
from diffuse_core.services import run, session_terms, stage_run
from diffuse_core.services.lane import rows_of
from tests.services.tiny_model import LAYERS, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.model_ports import LongPass, StageResult, StageStep
    from diffuse_core.services.client import ClientService
    from tests.services.cluster import Cluster

CAPS = {2: (5, 5), 3: (4, 3, 3)}
PROMPT, COUNT = 45, 40


@pytest.fixture(autouse=True)
def _pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a prompt that go as long passes, and one that is short."""
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 12)
    monkeypatch.setattr(session_terms, "MAX_ROWS", 24)
    monkeypatch.setattr(run, "CREDITS", 4)


class Recorder:
    """The real executor, which keeps what it gave for each row of each session, each time."""

    def __init__(self, *given: object, lean: bool) -> None:
        self._inner = load_slice(*given, lean=lean)
        self.gave: dict[bytes, dict[int, list[bytes]]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def keep(self, step: StageStep, outcome: StageResult | Refused | None) -> None:
        assert not isinstance(outcome, Refused)
        if outcome is None:
            return
        kept = self.gave.setdefault(step.session, {})
        if outcome.hidden is not None:
            data, rows = bytes(outcome.hidden.data), outcome.hidden.shape[0]
            size, at = len(data) // rows, step.position
            pieces = [data[cut : cut + size] for cut in range(0, len(data), size)]
        else:
            at = step.position + rows_of(step) - 1 - len(step.drafts)
            pieces = [drawn.token.to_bytes(4) for drawn in outcome.drawn]
        for row, piece in enumerate(pieces, at):
            kept.setdefault(row, []).append(piece)

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        outcomes = self._inner.run(steps)
        for step, outcome in zip(steps, outcomes, strict=True):
            self.keep(step, outcome)
        return outcomes

    def start(self, step: StageStep) -> KeptPass:
        return KeptPass(self, step, self._inner.start(step))


class KeptPass:
    def __init__(self, recorder: Recorder, step: StageStep, inner: LongPass) -> None:
        self._recorder, self._step, self._inner = recorder, step, inner

    def advance(self, seconds: float) -> StageResult | Refused | None:
        outcome = self._inner.advance(seconds)
        self._recorder.keep(self._step, outcome)
        return outcome


def ask(seed: int, *, speculate: bool = False) -> GenerateRequest:
    return GenerateRequest(
        model="tiny",
        raw=words(PROMPT, seed),
        max_tokens=COUNT,
        ignore_eos=True,
        speculate=speculate,
        sampling=SamplingParams(temperature=1.0, seed=seed),
    )


async def disturbed(
    cluster: Cluster, client: ClientService, seed: int, *, speculate: bool
) -> tuple[list[int], Finished]:
    """A generation of which each host in turn loses all it has."""
    tokens: list[int] = []
    doomed = iter(cluster.hosts)
    async with aclosing(client.generate(ask(seed, speculate=speculate))) as stream:
        async for event in stream:
            if isinstance(event, Finished):
                return tokens, event
            if isinstance(event, RouteChosen):
                (run_,) = client._desk._runs.values()
                session = run_.session
            elif isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
                if len(tokens) % 12 == 7 and (host := next(doomed, None)) is not None:
                    stage = host.service.stage
                    (held,) = (run for run in stage._runs.values() if run.state.id == session)
                    stage._forget(held)
    raise AssertionError("it ended without a word")


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("lean", [True, False], ids=["lean", "general"])
async def test_every_row_has_the_same_bits(
    cluster: Cluster, stages: int, contract: str, *, lean: bool, speculate: bool
) -> None:
    cluster.contract = contract
    for cap in CAPS[stages]:
        await cluster.host(cap, load=partial(Recorder, lean=lean))
    client, other = await cluster.client(), await cluster.client()
    _, right, _ = await other.whole(ask(1))
    first = {host.id: next(iter(host.executors[0].gave)) for host in cluster.hosts}
    # Beside others, so that what is run again shares passes with what is new.
    company = [asyncio.create_task(other.whole(ask(seed))) for seed in (2, 3, 4)]
    tokens, finished = await disturbed(cluster, client, 1, speculate=speculate)
    assert tuple(tokens) == right
    assert len(finished.events) == stages
    for task in company:
        await task
    for host in cluster.hosts:
        gave = dict(host.executors[0].gave)
        wanted = {row: once for row, (once,) in gave.pop(first[host.id]).items()}
        same = [kept for kept in gave.values() if kept.keys() & wanted.keys() == wanted.keys()]
        assert len(gave) == 1 + len(company)
        again = [kept for kept in same if all(wanted[row] in kept[row] for row in wanted)]
        # That of the generation, and none of its company.
        (kept,) = again
        if not speculate:
            assert all(set(kept[row]) == {piece} for row, piece in wanted.items())
            # What this host lost it computed twice, and nothing more often.
            times = {len(kept[row]) for row in wanted}
            assert times <= {1, 2}
            assert host.service.slice.end == LAYERS or times == {1, 2}
