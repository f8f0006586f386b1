"""All ways to draw at once, over a network: what one process would draw from the model's logits.

The logits are those of transformers for the whole text; also when a Stage is lost on the way.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch

from diffuse_core.cli.alternatives import alternatives, take_all
from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.sampling import Sampler
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from tests.domain.sampling_reference import chances
from tests.services.test_going_on import on_route, twice
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from diffuse_core.domain.decoding import TokenLogprobs
    from diffuse_core.services.client import ClientService
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel

PROMPT = 21
COUNT = 24
TOP = 20
EVERYTHING = SamplingParams(
    temperature=0.9,
    top_p=0.95,
    top_k=40,
    min_p=0.01,
    seed=11,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.3,
    logit_bias=((9, 1.5), (60, -4.0)),
)


def ask(**options: object) -> GenerateRequest:
    given = {"sampling": EVERYTHING, "logprobs": TOP, "ignore_eos": True, **options}
    return GenerateRequest(model="tiny", raw=words(PROMPT), max_tokens=COUNT, **given)


class Heard:
    """What came of a request; a Stage may be struck after some tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finished: Finished | None = None

    async def hear(
        self,
        client: ClientService,
        request: GenerateRequest,
        strike: Callable[[], None] | None = None,
    ) -> Heard:
        async with aclosing(client.generate(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self.tokens += event.token_ids
                    self.logprobs += event.logprobs
                elif isinstance(event, Finished):
                    self.finished = event
                if strike is not None and len(self.tokens) >= COUNT // 3:
                    strike()
                    strike = None
        return self


def logits_of(tiny: TinyModel, tokens: list[int]) -> np.ndarray:
    """Of the rows after which each token was drawn, shape (tokens, vocab)."""
    with torch.inference_mode():
        whole = tiny.reference(torch.tensor([[*ids(PROMPT), *tokens]])).logits[0]
    return whole[PROMPT - 1 : -1].float().numpy()


@pytest.mark.parametrize("speculate", [True, False])
async def test_tokens_and_log_probabilities_are_those_of_the_reference(
    split: Callable, tiny: TinyModel, *, speculate: bool
) -> None:
    client = await (await split(3)).client()
    heard = await Heard().hear(client, ask(speculate=speculate))
    assert len(heard.tokens) == len(heard.logprobs) == COUNT
    logits = logits_of(tiny, heard.tokens)
    decoding = DecodingParams(COUNT, EVERYTHING)
    own = torch.log_softmax(torch.tensor(logits), -1)
    for at, (token, entry) in enumerate(zip(heard.tokens, heard.logprobs, strict=True)):
        past = heard.tokens[:at]
        sampler = Sampler(decoding, PROMPT, past, ids(PROMPT))
        (drawn,) = sampler.choose(logits[at : at + 1], PROMPT + at, ())
        assert drawn.token == token
        assert chances(logits[at].tolist(), decoding, past, ids(PROMPT))[token] > 0
        assert entry.drawn == pytest.approx(float(own[at, token]), abs=1e-4)
        likeliest = own[at].topk(TOP).values.tolist()
        assert [value for _, value in entry.top] == pytest.approx(likeliest, abs=1e-4)
        assert [own[at, one].item() for one, _ in entry.top] == pytest.approx(likeliest, abs=1e-4)


@pytest.mark.parametrize("index", [0, 1])
async def test_a_lost_stage_changes_no_token_and_no_log_probability(
    cluster: Cluster, index: int
) -> None:
    hosts = await twice(cluster)
    client = await cluster.client()
    whole = await Heard().hear(client, ask())
    struck = await Heard().hear(client, ask(), lambda: cluster.crash(on_route(hosts, index)))
    assert struck.finished is not None
    assert struck.finished.events
    assert struck.tokens == whole.tokens
    assert struck.logprobs == whole.logprobs


async def test_stop_ids_are_barred_for_so_many_tokens(split: Callable, tiny: TinyModel) -> None:
    client = await (await split(2)).client()
    liked = msgspec.structs.replace(EVERYTHING, logit_bias=((tiny.stop_ids[1], 500.0),))
    for least in (0, 6):
        request = ask(sampling=liked, ignore_eos=False, min_tokens=least)
        heard = await Heard().hear(client, request)
        assert heard.finished is not None
        assert heard.finished.finish_reason == "stop"
        assert len(heard.tokens) == least + 1
        assert heard.tokens.index(tiny.stop_ids[1]) == least
    heard = await Heard().hear(client, ask(sampling=liked))
    assert heard.tokens == [tiny.stop_ids[1]] * COUNT


@pytest.mark.slow
async def test_alternatives_come_again_elsewhere(split: Callable, cluster: Cluster) -> None:
    await cluster.host()
    whole = await cluster.client()
    parts = await (await split(3)).client()
    request = ask(sampling=SamplingParams(temperature=1.5, seed=3), logprobs=None)
    answers, again = alternatives(request, 3), alternatives(request, 3)
    await take_all(whole, answers, None)
    await take_all(parts, again, None)
    said = [answer.tokens for answer in answers]
    assert said == [answer.tokens for answer in again]
    assert len(set(map(tuple, said))) == 3
    for index, tokens in enumerate(said):
        seed = alternative_seed(3, index)
        alone = msgspec.structs.replace(
            request, sampling=SamplingParams(temperature=1.5, seed=seed)
        )
        assert (await Heard().hear(parts, alone)).tokens == tokens
