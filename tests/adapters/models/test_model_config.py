"""Settings of every architecture go through as they are meant, and nothing else does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.architectures import PROVEN
from diffuse_core.adapters.models.architectures import ARCHITECTURES
from diffuse_core.adapters.models.model_config import clean_config, sizes_of
from diffuse_core.errors import ModelUnusable
from tests.adapters.models.published import (
    GEMMA_3,
    GPT2,
    LLAMA_3_1,
    MISTRAL_7B,
    PHI_3,
    PUBLISHED,
    QWEN_3,
)
from tests.adapters.models.tiny import TINY, tiny_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

UNREAD = {
    "architectures",
    "auto_map",
    "transformers_version",
    "id2label",
    "label2id",
    "dtype",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    "seq_length",
    "task_specific_params",
    "cache_implementation",
    "router_aux_loss_coef",
}
"""What a module computes does not hang on these."""


def as_file(config: PreTrainedConfig) -> dict[str, object]:
    return json.loads(json.dumps(config.to_dict()))


def made_from(cleaned: dict[str, object]) -> PreTrainedConfig:
    settings = dict(cleaned)
    return CONFIG_MAPPING[settings.pop("model_type")](**settings)


def meant(config: PreTrainedConfig, known: dict[str, object]) -> dict[str, object]:
    """The settings that the class has of its own."""
    whole = as_file(config)
    own = set(as_file(CONFIG_MAPPING[config.model_type]())) - UNREAD
    dropped = {key for key in own if key.endswith(("dropout", "pdrop")) or key not in known}
    return {key: whole[key] for key in own - dropped}


def test_both_lists_of_architectures_are_the_same() -> None:
    assert set(ARCHITECTURES) == set(PROVEN) == set(TINY)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_settings_mean_the_same_after_cleaning(kind: str) -> None:
    for config in (CONFIG_MAPPING[kind](), tiny_config(kind)):
        cleaned = clean_config(as_file(config), "x")
        again = made_from(cleaned)
        known = as_file(again)
        assert meant(again, known) == meant(config, known)
        sizes = sizes_of(cleaned)
        assert sizes.layers == config.num_hidden_layers
        assert sizes.hidden == config.hidden_size
        assert sizes.vocab == config.vocab_size
        assert sizes.context == getattr(config, "max_position_embeddings", 2048)
        # Cleaning again changes nothing, and all of it is JSON.
        assert clean_config(json.loads(json.dumps(cleaned)), "x") == cleaned


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_what_is_left_out_is_what_the_library_means_by_it(kind: str) -> None:
    default = CONFIG_MAPPING[kind]()
    for key, value in ARCHITECTURES[kind].defaults.items():
        if key not in ("seq_length", "num_nextn_predict_layers"):
            assert getattr(default, key) == value, key


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_settings_are_understood(kind: str) -> None:
    raw, sizes = PUBLISHED[kind]
    cleaned = clean_config(raw, "x")
    assert msgspec.structs.astuple(sizes_of(cleaned)) == sizes
    settings = {key: value for key, value in raw.items() if key not in UNREAD}
    settings.pop("model_type")
    made = made_from(cleaned)
    known = as_file(made)
    assert meant(made, known) == meant(CONFIG_MAPPING[kind](**settings), known)


def test_rotary_settings_of_two_kinds_of_attention() -> None:
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    raw = {**GEMMA_3, "rope_parameters": nested}
    assert clean_config(raw, "x")["rope_parameters"] == nested
    bad = {**nested, "full_attention": {"rope_type": "dynamic", "factor": 8.0}}
    with pytest.raises(ModelUnusable, match=r"full_attention\.rope_type 'dynamic'"):
        clean_config({**raw, "rope_parameters": bad}, "x")
    with pytest.raises(ModelUnusable, match=r"rope_parameters.full_attention is \{"):
        clean_config({**LLAMA_3_1, "rope_parameters": nested}, "x")


BAD = [
    (PHI_3, {"rope_scaling": {"type": "longrope"}}, "rope_type 'longrope'"),
    (LLAMA_3_1, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
    (LLAMA_3_1, {"rope_scaling": {"type": "linear", "x": 3}}, "rope_scaling.x is 3"),
    (LLAMA_3_1, {"rope_scaling": {"factor": float("inf")}}, "rope_scaling.factor is inf"),
    (LLAMA_3_1, {"rope_scaling": {"factor": -2}}, "rope_scaling.factor is -2"),
    (LLAMA_3_1, {"rope_scaling": {"beta_fast": float("nan")}}, "beta_fast is nan"),
    (LLAMA_3_1, {"rope_scaling": {"beta_fast": 1e30}}, "beta_fast is 1e"),
    (LLAMA_3_1, {"rope_scaling": {"truncate": 1}}, "truncate is 1"),
    (PHI_3, {"auto_map": {"AutoModel": "modeling_evil.Phi3Model"}}, "code of its own"),
    (LLAMA_3_1, {"auto_map": {"AutoModel": "modeling_phi3.X"}}, "code of its own"),
    (PHI_3, {"auto_map": "modeling_phi3.Phi3Model"}, "code of its own"),
    (LLAMA_3_1, {"is_encoder_decoder": True}, "is_encoder_decoder is True"),
    (GPT2, {"add_cross_attention": True}, "add_cross_attention is True"),
    (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx is True"),
    (GEMMA_3, {"use_bidirectional_attention": True}, "bidirectional_attention is True"),
    (GEMMA_3, {"layer_types": ["chunked_attention"] * 26}, "layer_types 'chunked_attention'"),
    (QWEN_3, {"layer_types": ["full_attention"]}, "layer_types does not list"),
    (QWEN_3, {"layer_types": "full_attention"}, "layer_types is 'full"),
    (LLAMA_3_1, {"layer_types": ["sliding_attention"] * 32}, "does not read"),
    (LLAMA_3_1, {"layer_types": "full_attention"}, "does not read"),
    (MISTRAL_7B, {"layer_types": ["full_attention"] * 32, "sliding_window": 9}, "does not read"),
    (GPT2, {"n_layer": 2000}, "n_layer is 2000"),
    (GPT2, {"n_positions": None, "n_ctx": None}, "n_positions is None"),
    (LLAMA_3_1, {"quantization_config": {"quant_method": "mxfp4"}}, "quantised safetensors"),
    (GPT2, {"architectures": ["GPT2ForSequenceClassification"]}, "not a text-generating"),
    (GEMMA_3, {"model_type": "gemma3"}, "architecture 'gemma3' is not"),
    (LLAMA_3_1, {"model_type": ["llama"]}, r"architecture \['llama'\] is not"),
]


@pytest.mark.parametrize(("raw", "changes", "message"), BAD)
def test_what_is_not_supported_is_named(
    raw: dict[str, object], changes: dict[str, object], message: str
) -> None:
    clean_config(raw, "x")
    with pytest.raises(ModelUnusable, match=message):
        clean_config({**raw, **changes}, "x")


def test_a_mixture_of_experts_of_another_kind_is_refused() -> None:
    raw = as_file(tiny_config("deepseek_v3"))
    clean_config({**raw, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}, "x")
    for change in ({"scoring_func": "softmax"}, {"topk_method": "greedy"}, {"moe_layer_freq": 2}):
        with pytest.raises(ModelUnusable, match=next(iter(change))):
            clean_config({**raw, **change}, "x")


def test_kinds_of_layers_that_say_nothing_new_are_let_through() -> None:
    kinds = {"layer_types": ["full_attention"] * 32}
    assert clean_config({**MISTRAL_7B, **kinds}, "x") == clean_config(MISTRAL_7B, "x")


def test_per_layer_settings_are_one_for_each_layer() -> None:
    raw = as_file(tiny_config("smollm3"))
    with pytest.raises(ModelUnusable, match="no_rope_layers does not list"):
        clean_config({**raw, "no_rope_layers": [1, 0]}, "x")
    without = as_file(tiny_config("exaone4"))
    del without["layer_types"]
    with pytest.raises(ModelUnusable, match="layer_types is None"):
        clean_config(without, "x")
