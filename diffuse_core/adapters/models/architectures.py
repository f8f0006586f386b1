"""The architectures that are supported: what their configurations may say, and under which names.

Names and defaults are those of the configuration classes of `transformers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.architecture_settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.models.setting_checks import Check


@dataclass(frozen=True)
class Architecture:
    """What a configuration of one `model_type` may say."""

    settings: Mapping[str, Check]
    required: frozenset[str]
    defaults: Mapping[str, object]
    """What is meant by a setting that is left out, where readers of the configuration need it."""
    aliases: Mapping[str, str]
    """Other names for settings in older files."""
    code: tuple[str, ...]
    """Modules of code that older files name (and that is part of `transformers` now)."""
    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    context: str = "max_position_embeddings"


_TIED = frozenset(
    {
        "gemma",
        "gemma2",
        "gemma3_text",
        "smollm3",
        "cohere",
        "cohere2",
        "starcoder2",
        "gpt2",
        "opt",
        "bloom",
        "falcon",
    }
)
_REQUIRED = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "ffn_dim",
        "n_embd",
        "n_layer",
        "n_head",
        "n_positions",
        "kv_lora_rank",
        "v_head_dim",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
    }
)
_ALSO_REQUIRED: dict[str, frozenset[str]] = {
    # The class cannot make the list where there is no window.
    "exaone4": frozenset({"layer_types"}),
}
_DEFAULTS: dict[str, dict[str, object]] = {
    "bloom": {"seq_length": 2048},
    "deepseek_v3": {"num_nextn_predict_layers": 1},
    "falcon": {
        "max_position_embeddings": 2048,
        "multi_query": True,
        "new_decoder_architecture": False,
    },
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen2_moe": {"num_key_value_heads": 16},
    "qwen3_moe": {"num_key_value_heads": 4},
    "mixtral": {"num_key_value_heads": 8},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256},
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256},
    "smollm3": {"num_key_value_heads": 4},
    "exaone4": {"num_key_value_heads": 32},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "stablelm": {"num_key_value_heads": 32},
    "starcoder2": {"num_key_value_heads": 2},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "helium": {"num_key_value_heads": 20, "head_dim": 128},
}
_ALIASES: dict[str, dict[str, str]] = {
    "bloom": {
        "n_embed": "hidden_size",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    },
    "falcon": {
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
    "gpt2": {"n_ctx": "n_positions"},
    "gpt_oss": {"num_experts": "num_local_experts"},
    "mixtral": {"num_experts": "num_local_experts"},
    "qwen3_moe": {"num_local_experts": "num_experts"},
    "deepseek_v2": {"num_experts": "n_routed_experts"},
    "deepseek_v3": {
        "num_local_experts": "n_routed_experts",
        "num_mtp_layers": "num_nextn_predict_layers",
    },
}
_CODE: dict[str, tuple[str, ...]] = {
    "phi3": ("configuration_phi3", "modeling_phi3"),
    "falcon": ("configuration_falcon", "modeling_falcon"),
    "deepseek_v2": ("configuration_deepseek", "modeling_deepseek"),
    "deepseek_v3": ("configuration_deepseek", "modeling_deepseek"),
}
_OWN_NAMES: dict[str, dict[str, str]] = {
    "gpt2": {"layers": "n_layer", "hidden": "n_embd", "heads": "n_head", "context": "n_positions"},
    "bloom": {"layers": "n_layer", "heads": "n_head", "context": "seq_length"},
}


def _architecture(kind: str) -> Architecture:
    settings = SETTINGS[kind]
    defaults = {"tie_word_embeddings": kind in _TIED, **_DEFAULTS.get(kind, {})}
    return Architecture(
        settings=settings,
        required=(_REQUIRED | _ALSO_REQUIRED.get(kind, frozenset())) & settings.keys(),
        defaults=defaults,
        aliases=_ALIASES.get(kind, {}),
        code=_CODE.get(kind, ()),
        **_OWN_NAMES.get(kind, {}),
    )


ARCHITECTURES = {kind: _architecture(kind) for kind in SETTINGS}
"""By `model_type`."""
