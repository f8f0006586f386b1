"""Settings of tiny models of every architecture: unequal sizes, so that a mix-up shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_PADDED = {**_GROUPED, "pad_token_id": 0}
_WINDOW = {"sliding_window": 16}
_EXPERTS = {"moe_intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 2}
_DEEPSEEK = {
    **_SIZES,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 48,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 24,
    "v_head_dim": 20,
    "first_k_dense_replace": 1,
}
_SHORT = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}

TINY: dict[str, dict[str, object]] = {
    "llama": _GROUPED,
    "mistral": {**_GROUPED, **_WINDOW},
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 32},
    "qwen2_moe": {
        **_GROUPED,
        **_EXPERTS,
        "shared_expert_intermediate_size": 80,
        "mlp_only_layers": [1],
    },
    "qwen3_moe": {**_GROUPED, **_EXPERTS, "head_dim": 24},
    "mixtral": {**_GROUPED, "num_local_experts": 4},
    "gemma": {**_GROUPED, "head_dim": 32},
    "gemma2": {**_GROUPED, **_WINDOW, "head_dim": 32},
    "gemma3_text": {**_GROUPED, **_WINDOW, "head_dim": 32},
    "phi": _GROUPED,
    "phi3": {**_PADDED, "original_max_position_embeddings": 256},
    "olmo": _PADDED,
    "olmo2": _PADDED,
    "granite": _GROUPED,
    "smollm3": _PADDED,
    "cohere": {**_PADDED, "use_qk_norm": True},
    "cohere2": {**_PADDED, **_WINDOW},
    "exaone4": {**_GROUPED, **_WINDOW},
    "glm4": {**_PADDED, "head_dim": 24},
    "stablelm": {**_GROUPED, "qk_layernorm": True, "use_qkv_bias": True},
    "starcoder2": _GROUPED,
    "gpt_neox": _SIZES,
    "gpt_oss": {
        **_GROUPED,
        **_WINDOW,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "deepseek_v2": {**_DEEPSEEK, "topk_method": "group_limited_greedy"},
    "deepseek_v3": _DEEPSEEK,
    "helium": {**_GROUPED, "head_dim": 16},
    "nemotron": _GROUPED,
    "gpt2": {"vocab_size": 96, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 256},
    "opt": {**_SHORT, "ffn_dim": 112, "max_position_embeddings": 256, "word_embed_proj_dim": 48},
    "bloom": {"vocab_size": 96, "hidden_size": 64, "n_layer": 4, "n_head": 4},
    "falcon": {**_SHORT, "max_position_embeddings": 256},
}


def tiny_config(kind: str, **settings: object) -> PreTrainedConfig:
    return CONFIG_MAPPING[kind](**{**TINY[kind], **settings})


def tiny_model(kind: str, **settings: object) -> torch.nn.Module:
    """A random model in which no two tensors are equal."""
    torch.manual_seed(len(kind))
    model = AutoModelForCausalLM.from_config(tiny_config(kind, **settings)).eval()
    with torch.no_grad():
        for tensor in (*model.parameters(), *dict(persistent(model)).values()):
            tensor.normal_(0.0, 0.3)
    return model


def persistent(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Buffers that a file has."""
    kept = model.state_dict()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in kept]
