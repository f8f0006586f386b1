"""What a Session that takes another's place computes is, bit for bit, what that one computed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import Refused
from diffuse_core.services import run, session_terms, stage_run
from tests.greedy import last_token
from tests.services.tiny_model import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.model_ports import LongPass, StageResult, StageStep
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
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
    """The real executor, which keeps what it gave for each position of each session."""

    def __init__(self, *given: object, lean: bool) -> None:
        self._inner = load_slice(*given, lean=lean)
        self.gave: dict[bytes, dict[int, bytes]] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def keep(self, step: StageStep, outcome: StageResult | Refused | None) -> None:
        assert not isinstance(outcome, Refused)
        if outcome is None:
            return
        kept = self.gave.setdefault(step.session, {})
        if outcome.hidden is not None:
            kept[step.position] = bytes(outcome.hidden.data)
        elif last_token(outcome) is not None:
            kept[step.position] = last_token(outcome).to_bytes(4)

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


def ask(seed: int) -> GenerateRequest:
    return GenerateRequest(
        model="tiny",
        raw=words(PROMPT, seed),
        max_tokens=COUNT,
        ignore_eos=True,
        sampling=SamplingParams(temperature=1.0, seed=seed),
    )


async def disturbed(
    cluster: Cluster, client: ClientService, observer: Observer, seed: int
) -> tuple[list[int], Finished]:
    """A generation that loses the link to each of its hosts, one after the other."""
    tokens: list[int] = []
    doomed = iter(cluster.hosts)
    async with aclosing(client.generate(ask(seed))) as stream:
        async for event in stream:
            if isinstance(event, Finished):
                return tokens, event
            if isinstance(event, TextDelta):
                tokens.extend(event.token_ids)
                if len(tokens) % 12 == 7 and (host := next(doomed, None)) is not None:
                    await observer.links.find(host.id).close()
    raise AssertionError("it ended without a word")


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@pytest.mark.parametrize("lean", [True, False], ids=["lean", "general"])
async def test_every_row_has_the_same_bits(
    cluster: Cluster, stages: int, contract: str, *, lean: bool
) -> None:
    cluster.contract = contract
    for cap in CAPS[stages]:
        await cluster.host(cap, load=partial(Recorder, lean=lean))
    observer = await cluster.observer()
    client, other = await cluster.client(observer), await cluster.client()
    _, right, _ = await other.whole(ask(1))
    first = {host.id: next(iter(host.executors[0].gave)) for host in cluster.hosts}
    # Beside others, so that what is run again shares passes with what is new.
    company = [asyncio.create_task(other.whole(ask(seed))) for seed in (2, 3, 4)]
    tokens, finished = await disturbed(cluster, client, observer, 1)
    assert tuple(tokens) == right
    assert len(finished.events) == stages
    for task in company:
        await task
    for host in cluster.hosts:
        gave = dict(host.executors[0].gave)
        wanted = gave.pop(first[host.id])
        same = [kept for kept in gave.values() if kept.items() <= wanted.items()]
        # Those of the generation, and none of its company.
        assert len(same) == stages + 1, (host.service.slice, len(same), len(gave))
        assert len(gave) == stages + 1 + len(company)
        last = max(same, key=len)
        assert host.service.slice.end == 10 or last == wanted
