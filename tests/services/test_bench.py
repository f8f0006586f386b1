"""Bench on a real network of a tiny model: exact lengths, every row, what is refused told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli.bench import measure
from diffuse_core.cli.bench.figures import decoding
from diffuse_core.cli.bench.measure import Asked, Bench, Results
from diffuse_core.cli.bench.prompts import Prompts, text_of, words_of
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import Refused, UsageError
from diffuse_core.services.measuring import hear

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from diffuse_core.domain.view import GenerateEvent
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.services.cluster import Cluster

ASKED = Asked(prompt_tokens=24, tokens=6, concurrency=(2,), rounds=2, seed=3)


async def bench_of(cluster: Cluster, asked: Asked, results: Results) -> Bench:
    observer: Observer = await cluster.observer()
    client = await cluster.client(observer)
    (model,) = observer.view().models
    return Bench(observer, client, model, asked, results, lambda _text: None)


@pytest.mark.slow
async def test_every_row_is_measured(split: Callable) -> None:
    cluster = await split(2)
    results = Results()
    await (await bench_of(cluster, ASKED, results)).run()
    assert results.complete
    assert results.prompt_lengths == {ASKED.prompt_tokens}, "exactly as long as was asked for"
    assert all(len(row.rounds) == ASKED.rounds for row in results.rows.values())
    assert {"plain.decode_tokens_per_s", "speculative.tokens_per_pass"} <= set(results.rows)
    assert "sessions_2.aggregate_tokens_per_s" in results.rows
    assert [hop.step.slice for hop in results.hops] == [step.slice for step in results.usual_route]
    assert all(hop.rtt_s for hop in results.hops)
    assert len(results.passes[results.usual_route]) == ASKED.rounds * (ASKED.tokens - 1)
    assert (results.refused, results.healed) == ({2: 0}, 0)


async def test_what_does_not_fit_the_model_is_refused_before(split: Callable) -> None:
    cluster = await split(1)
    asked = Asked(prompt_tokens=120, tokens=60, concurrency=(), rounds=1, seed=1)
    with pytest.raises(UsageError, match="--prompt-tokens 120"):
        await (await bench_of(cluster, asked, Results())).run()


class Busy:
    """A client of which every other answer is refused."""

    def __init__(self, client: ClientService) -> None:
        self._client = client
        self._asked = 0

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        self._asked += 1
        if self._asked % 2:
            raise Refused("no room", "busy")
        async for event in self._client.generate(request):
            yield event


async def test_refusals_are_counted_and_no_fault(
    split: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await split(1)
    results = Results()
    bench = await bench_of(cluster, ASKED, results)
    monkeypatch.setattr(bench, "_client", Busy(bench._client))
    asks = [bench._one("w1 w2 w3", speculate=False) for _ in range(4)]
    bench._note_together(4, [await ask for ask in asks])
    assert results.refused == {4: 2}
    assert results.failed == {4: 0}
    assert results.rows["sessions_4.session_tokens_per_s"].median > 0
    assert any("no room" in event for event in results.events)


async def test_figures_are_those_that_the_client_tells(split: Callable) -> None:
    cluster = await split(2)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    request = GenerateRequest(model="tiny", raw="w1 w2 w3", max_tokens=40, ignore_eos=True)
    heard = await hear(client, request, observer.clock)
    assert heard.finished is not None
    assert heard.tokens == heard.finished.usage.completion_tokens == 40
    told = heard.finished.timings
    # The client rounds, and counts all tokens but one; what is heard, those after the first pass.
    span = heard.at[-1] - heard.at[0]
    assert span == pytest.approx(told.total_s - told.ttft_s, rel=0.2, abs=0.003)
    rate = decoding(heard)["decode_tokens_per_s"]
    assert rate == pytest.approx((40 - heard.counts[0]) / span)


async def test_prompts_are_alike_for_a_seed_and_never_twice_the_same(split: Callable) -> None:
    cluster = await split(1)
    observer = await cluster.observer()
    client = await cluster.client(observer)
    (model,) = observer.view().models
    words = await words_of(client, model, seed=1)
    assert words == await words_of(client, model, seed=1)
    one, other = (Prompts(client, model.id, words, seed=5) for _ in range(2))
    assert one.make(9) == other.make(9)
    assert one.make(9) != one.make(9)
    assert text_of(words, 9, 1).count(" ") == 8


def test_sessions_at_once_have_short_prompts() -> None:
    assert measure.SHORT_PROMPT < 64
