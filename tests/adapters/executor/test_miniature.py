"""The small model has every kind of layer, and every step between kinds, of the real one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.miniature import MIN_LAYERS, miniature

FULL, SLIDING = "full_attention", "sliding_attention"


def small(kind: str, **config: Any) -> Any:
    return CONFIG_MAPPING[kind](**miniature(kind, config))


def steps(kinds: list[Any]) -> set[Any]:
    return set(itertools.pairwise(kinds))


PATTERNS = {
    "uniform": [FULL] * 30,
    "every sixth": ([SLIDING] * 5 + [FULL]) * 5,
    "alternating": [SLIDING, FULL] * 15,
    "upper": [FULL] * 20 + [SLIDING] * 10,
    "one at the end": [SLIDING] * 29 + [FULL],
    "one in between": [SLIDING] * 14 + [FULL] + [SLIDING] * 15,
}


@pytest.mark.parametrize("name", PATTERNS)
def test_every_step_between_kinds_of_layers_occurs(name: str) -> None:
    kinds = PATTERNS[name]
    config = small("gemma3_text", num_hidden_layers=30, layer_types=kinds, sliding_window=512)
    assert steps(kinds) <= steps(config.layer_types)
    assert MIN_LAYERS <= config.num_hidden_layers == len(config.layer_types) <= 6
    assert config.sliding_window == 8


def test_layers_without_rotary_positions_are_among_the_kinds() -> None:
    rope = ([1, 1, 1, 0] * 9)[:36]
    config = small("smollm3", num_hidden_layers=36, no_rope_layers=rope)
    assert steps(rope) <= steps(config.no_rope_layers)


def test_dense_layers_of_a_mixture_are_among_the_kinds() -> None:
    config = small("deepseek_v3", num_hidden_layers=61, first_k_dense_replace=3)
    assert 2 <= config.first_k_dense_replace < config.num_hidden_layers - 1
    config = small("deepseek_v3", num_hidden_layers=61, first_k_dense_replace=1)
    assert config.first_k_dense_replace == 1
    config = small("qwen3_moe", num_hidden_layers=48, mlp_only_layers=[0, 20, 21])
    dense = [i in config.mlp_only_layers for i in range(config.num_hidden_layers)]
    assert len(steps(dense)) == 4
    assert config.num_experts == 4


@pytest.mark.parametrize(
    ("kind", "config", "wanted"),
    [
        ("llama", {"num_attention_heads": 32, "num_key_value_heads": 32}, 4),
        ("llama", {"num_attention_heads": 32, "num_key_value_heads": 8}, 2),
        ("llama", {"num_attention_heads": 32, "num_key_value_heads": 1}, 1),
    ],
)
def test_heads_share_keys_as_they_did(kind: str, config: dict[str, Any], wanted: int) -> None:
    assert small(kind, hidden_size=4096, **config).num_key_value_heads == wanted


def test_switches_stay_and_sizes_shrink() -> None:
    config = small(
        "granite",
        hidden_size=2048,
        num_attention_heads=32,
        intermediate_size=8192,
        vocab_size=49155,
        max_position_embeddings=131072,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        attention_bias=True,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 5e6,
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    )
    assert (config.embedding_multiplier, config.logits_scaling) == (12.0, 8.0)
    assert config.attention_bias
    assert config.tie_word_embeddings
    assert config.rope_parameters["rope_type"] == "yarn"
    assert config.rope_parameters["original_max_position_embeddings"] == 32
    assert config.hidden_size <= 64
    assert config.vocab_size <= 128


def test_heads_wider_than_the_hidden_state_stay_so() -> None:
    config = small("qwen3", hidden_size=1024, num_attention_heads=16, head_dim=128)
    assert config.head_dim * config.num_attention_heads > config.hidden_size


def test_only_an_even_number_of_a_heads_numbers_is_rotated() -> None:
    config = small("phi", partial_rotary_factor=0.4, hidden_size=2560, num_attention_heads=32)
    rotated = int(config.hidden_size / config.num_attention_heads * 0.4)
    assert rotated >= 2
    assert rotated % 2 == 0
