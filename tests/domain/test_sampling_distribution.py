"""What is drawn follows the definition, and what transformers makes of the same logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain import sampling
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.sampling import Sampler
from tests.domain.sampling_reference import chances, differs, some_logits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

VOCAB = 200
PROMPT = [3, 3, 150, 9, 42]
PAST = [9, 9, 9, 17, 60, 17]
DRAWS = 20_000
BIAS = ((9, 1.5), (60, -4.0), (11, 3.0), (10**6, 5.0))
EVERYTHING: dict[str, Any] = {
    "temperature": 0.8,
    "top_p": 0.9,
    "top_k": 60,
    "min_p": 0.02,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "logit_bias": BIAS,
}
CASES: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 30},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.2, "min_p": 0.03, "top_p": 0.7},
    {"temperature": 1.2, "min_p": 0.03, "top_k": 12},
    {"temperature": 1.0, "repetition_penalty": 1.7},
    {"temperature": 1.0, "repetition_penalty": 0.6},
    {"temperature": 1.0, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"temperature": 1.0, "presence_penalty": -2.0, "top_p": 0.6},
    {"temperature": 1.0, "logit_bias": BIAS},
    EVERYTHING,
]
NAMES = ["+".join(case) for case in CASES]


def decoding_of(case: dict[str, Any], **more: Any) -> DecodingParams:
    return DecodingParams(4096, SamplingParams(**case), stop_ids=(11, 12), **more)


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[int, float]]:
    """From what a Sampler draws a token after PROMPT and PAST: ids with probabilities."""
    found: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []
    real = sampling._candidates

    def spy(logits: NDArray[np.float32], params: SamplingParams) -> Any:
        ids, weights, ordered = real(logits, params)
        found.append((np.arange(len(logits)) if ids is None else ids, weights.copy()))
        return ids, weights, ordered

    monkeypatch.setattr(sampling, "_candidates", spy)

    def of(logits: np.ndarray, decoding: DecodingParams) -> dict[int, float]:
        sampler = Sampler(decoding, len(PROMPT), PAST, PROMPT)
        sampler.choose(logits, len(PROMPT) + len(PAST), ())
        ids, weights = found.pop()
        pairs = zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True)
        return {token: chance for token, chance in pairs if chance > 0}

    return of


@pytest.mark.parametrize("min_tokens", [0, 6, 7])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_distribution_is_that_of_the_definition(
    case: dict[str, Any], min_tokens: int, distribution: Callable
) -> None:
    decoding = decoding_of(case, min_tokens=min_tokens)
    for seed in range(5):
        logits = some_logits(VOCAB, seed)
        assert distribution(logits, decoding) == pytest.approx(
            chances(logits[0].tolist(), decoding, PAST, PROMPT), rel=1e-5
        )


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_distribution_is_that_of_transformers(
    case: dict[str, Any], distribution: Callable
) -> None:
    """Its processors in the order of vLLM; it has none for presence and frequency."""
    import torch
    from transformers.generation import logits_process as theirs

    case = {name: case[name] for name in case if not name.startswith(("presence", "frequency"))}
    decoding = decoding_of(case, min_tokens=len(PAST) + 1)
    params = decoding.sampling
    ids = torch.tensor([PROMPT + PAST])
    steps = [
        theirs.RepetitionPenaltyLogitsProcessor(params.repetition_penalty),
        theirs.MinNewTokensLengthLogitsProcessor(
            len(PROMPT), decoding.min_tokens, [11, 12], device="cpu"
        ),
        theirs.TemperatureLogitsWarper(params.temperature),
        theirs.MinPLogitsWarper(params.min_p),
        theirs.TopKLogitsWarper(params.top_k or VOCAB),
        theirs.TopPLogitsWarper(params.top_p),
    ]
    inside = {(token,): bias for token, bias in params.logit_bias if token < VOCAB}
    if inside:
        steps.insert(0, theirs.SequenceBiasLogitsProcessor(inside))
    for seed in range(20):
        logits = some_logits(VOCAB, seed)
        scores = torch.tensor(logits, dtype=torch.float64)
        for step in steps:
            scores = step(ids, scores)
        expected = torch.softmax(scores[0], -1).tolist()
        assert distribution(logits, decoding) == pytest.approx(
            {token: chance for token, chance in enumerate(expected) if chance > 0}, rel=1e-5
        )


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_draws_of_many_seeds_follow_the_distribution(case: dict[str, Any]) -> None:
    """20,000 draws; right ones would fail one of these with a chance of 12 * 1e-4."""
    logits, decoding = some_logits(VOCAB, 77), decoding_of(case)
    expected = chances(logits[0].tolist(), decoding, PAST, PROMPT)
    at, draws = len(PROMPT) + len(PAST), []
    for seed in range(DRAWS):
        params = msgspec.structs.replace(decoding.sampling, seed=seed)
        seeded = msgspec.structs.replace(decoding, sampling=params)
        (drawn,) = Sampler(seeded, len(PROMPT), PAST, PROMPT).choose(logits, at, ())
        draws.append(drawn.token)
    assert not differs(draws, expected)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_draws_along_one_answer_follow_the_distribution(seed: int) -> None:
    """The same generator by position, and pairs of neighbours: they do not know each other."""
    logits = some_logits(12, 5, 1.0)
    decoding = DecodingParams(DRAWS, SamplingParams(temperature=1.0, seed=seed))
    sampler = Sampler(decoding, 1)
    draws = [sampler.choose(logits, 1 + at, ())[0].token for at in range(DRAWS)]
    expected = chances(logits[0].tolist(), decoding)
    assert not differs(draws, expected)
    pairs = [12 * a + b for a, b in zip(draws[::2], draws[1::2], strict=True)]
    both = {12 * a + b: p * q for a, p in expected.items() for b, q in expected.items()}
    assert not differs(pairs, both)


def test_min_p_keeps_what_is_just_as_likely() -> None:
    logits = np.array([1, 3, 2.999, 3], dtype=np.float32)
    for temperature in (1e-310, 0.5, 100.0):
        drawn = {
            sampling.sample(logits, SamplingParams(temperature=temperature, min_p=1.0, seed=s), 1)
            for s in range(60)
        }
        assert drawn == {1, 3}


def test_the_test_of_draws_can_fail() -> None:
    rng = np.random.default_rng(1)
    even = dict.fromkeys(range(10), 0.1)
    draws = rng.integers(0, 10, DRAWS).tolist()
    assert not differs(draws, even)
    assert differs([10, *draws], even)
    assert differs(
        [token % 9 if token == 9 and n % 8 == 0 else token for n, token in enumerate(draws)], even
    )


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=30),
    st.floats(0.05, 10),
    st.floats(0, 1),
    st.integers(0, 40),
    st.floats(0.01, 1),
    st.integers(0, 2**63 - 1),
)
@settings(max_examples=300)
def test_a_drawn_token_passes_every_filter(
    values: list[float], temperature: float, min_p: float, top_k: int, top_p: float, seed: int
) -> None:
    logits = np.array(values, dtype=np.float32)
    params = SamplingParams(
        temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p, seed=seed
    )
    token = sampling.sample(logits, params, 5)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    assert weights[token] >= min_p
    if top_k:
        assert (logits > logits[token]).sum() < top_k
    kept = weights[weights >= min_p]
    assert kept[kept > weights[token]].sum() <= top_p * kept.sum() * (1 + 1e-9) or (
        token == logits.argmax()
    )
