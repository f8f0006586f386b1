"""Through the executor and its wire form: splitting a model must not change what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.domain.slices import Slice
from tests.greedy import last_token

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT_LENGTHS = (1, 2, 7, 20)
MIXED = ["full_attention", "sliding_attention"] * 3

MODELS = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral-window": ("mistral", {"sliding_window": 8, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "qwen2-mixed": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}),
}


def prompts(vocab: int = 101) -> list[list[int]]:
    # Scattered and never twice the same, without a generator.
    return [
        [(37 * i * i + 11 * length) % vocab for i in range(length)] for length in PROMPT_LENGTHS
    ]


@pytest.mark.parametrize("borders", [(0, 5), (0, 2, 5), (0, 1, 3, 5), (0, 1, 2, 3, 4, 5)])
def test_slices_agree_in_bf16(
    borders: tuple[int, ...],
    make_model: Callable,
    load: Callable,
    chain: type,
    reference: Callable,
) -> None:
    source, model = make_model("llama", layers=5, dtype=torch.bfloat16)
    executors = load(source, borders, "bf16")
    for prompt in prompts():
        generation = chain(executors)
        assert generation.generate(prompt, 12) == reference(model, prompt, 12)
        generation.close()


@pytest.mark.parametrize("name", ["llama", "qwen2-mixed", "mistral-window"])
def test_hidden_states_are_bit_equal_to_those_of_a_whole_slice(
    name: str, make_model: Callable, load: Callable, chain: type
) -> None:
    kind, settings = MODELS[name]
    source, model = make_model(kind, **settings)
    body = load(source, (0, 5))[0]
    split = load(source, (0, 2, 5))
    prompt = prompts()[-1]
    whole, parts = chain([body]), chain(split)
    for tokens in (prompt, [3], [4, 5], [6]):
        one = whole.step(tokens, want_token=False).hidden
        other = parts.step(tokens, want_token=False).hidden
        assert bytes(one.data) == bytes(other.data)
        assert one.shape == (len(tokens), model.config.hidden_size)


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-mixed", "mistral-window"])
def test_parts_of_larger_slices_make_a_route(
    name: str, make_model: Callable, load: Callable, chain: type, reference: Callable
) -> None:
    kind, settings = MODELS[name]
    source, model = make_model(kind, **settings)
    low, high = load(source, (0, 4))[0], load(source, (1, 6))[0]
    for border in (1, 2, 3, 4):
        for prompt in prompts():
            generation = chain([low, high], parts=[Slice(0, border), Slice(border, 6)])
            assert generation.generate(prompt, 10) == reference(model, prompt, 10)
            generation.close()


def test_one_host_may_be_two_stages_of_a_route(
    make_model: Callable, load: Callable, chain: type, reference: Callable
) -> None:
    source, model = make_model("llama")
    whole, middle = load(source, (0, 6))[0], load(source, (2, 4))[0]
    prompt = prompts()[2]
    generation = chain([whole, middle], parts=[Slice(0, 2), Slice(2, 4)])
    tail = chain([whole], b"t" * 16, parts=[Slice(4, 6)])
    first = generation.step(prompt, want_token=False).hidden
    assert last_token(tail.step(prompt, first)) == reference(model, prompt, 1)[0]


def test_two_sessions_at_once_share_nothing(
    make_model: Callable, load: Callable, chain: type, reference: Callable
) -> None:
    source, model = make_model("llama")
    executors = load(source, (0, 2, 6))
    first, second = prompts()[2], prompts()[3]
    a, b = chain(executors, b"a" * 16), chain(executors, b"b" * 16)
    drawn_a, drawn_b = [last_token(a.step(first))], [last_token(b.step(second))]
    for _ in range(9):
        drawn_a.append(last_token(a.step(drawn_a[-1:])))
        drawn_b.append(last_token(b.step(drawn_b[-1:])))
    a.close()
    drawn_b.append(last_token(b.step(drawn_b[-1:])))
    assert drawn_a == reference(model, first, 10)
    assert drawn_b == reference(model, second, 11)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral"])
def test_cropped_rows_are_run_again_with_the_same_result(
    name: str, make_model: Callable, load: Callable, chain: type, reference: Callable
) -> None:
    kind, settings = MODELS[name]
    source, model = make_model(kind, **settings)
    executors = load(source, (0, 3, 6))
    prompt = prompts()[2]
    wanted = reference(model, prompt, 8)
    generation = chain(executors)
    assert generation.generate(prompt, 8) == wanted
    generation.back_to(len(prompt) + 2)
    assert [
        last_token(generation.step([wanted[2]])),
        last_token(generation.step([wanted[3]])),
    ] == wanted[3:5]
    generation.back_to(0)
    assert generation.generate(prompt, 8) == wanted


def test_a_prompt_in_chunks_says_the_same(
    make_model: Callable, load: Callable, chain: type, reference: Callable
) -> None:
    source, model = make_model("mistral", sliding_window=8)
    prompt = prompts()[3]
    for borders in ((0, 6), (0, 2, 6)):
        generation = chain(load(source, borders))
        for start in (0, 6, 12):
            result = generation.step(prompt[start : start + 6], want_token=False)
            assert (result.hidden, last_token(result)) == (None, None)
        assert generation.generate(prompt[18:], 10) == reference(model, prompt, 10)
