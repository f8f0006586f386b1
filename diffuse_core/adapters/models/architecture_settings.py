"""The settings that each architecture reads, with the check of each.

Names and defaults are those of the configuration classes of `transformers`. What is not listed
here is dropped: a configuration can switch on nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.models.rope_settings import (
    LAYER_TYPES,
    rope_table,
    rope_table_by_layer_type,
)
from diffuse_core.adapters.models.setting_checks import (
    above_zero,
    count,
    flag,
    fraction,
    listed,
    number,
    one_of,
    only,
)
from diffuse_core.domain.slices import MAX_LAYERS

if TYPE_CHECKING:
    from diffuse_core.adapters.models.setting_checks import Check

_ACTIVATIONS = one_of(
    "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "relu2"
)
_WIDTH = count(1, 2**22)
_HEADS = count(1, 2**14)
_HEAD_WIDTH = count(1, 2**13)
_EXPERTS = count(1, 2**12)
_POSITIONS = count(1, 2**30)
_LAYER_COUNT = count(1, MAX_LAYERS)

_VOCABULARY: dict[str, Check] = {"vocab_size": count(1, 2**24), "tie_word_embeddings": flag}
_SIZES: dict[str, Check] = {
    **_VOCABULARY,
    "hidden_size": count(1, 2**20),
    "intermediate_size": _WIDTH,
    "num_hidden_layers": _LAYER_COUNT,
    "num_attention_heads": _HEADS,
    "max_position_embeddings": _POSITIONS,
    "hidden_act": _ACTIVATIONS,
}
_ROPE: dict[str, Check] = {
    "rope_theta": above_zero,
    "rope_parameters": rope_table,
    "rope_scaling": rope_table,
}
_PARTIAL: dict[str, Check] = {"partial_rotary_factor": fraction}
_GROUPED: dict[str, Check] = {"num_key_value_heads": _HEADS}
_HEAD: dict[str, Check] = {"head_dim": _HEAD_WIDTH}
_RMS: dict[str, Check] = {"rms_norm_eps": above_zero}
_LAYER_NORM: dict[str, Check] = {"layer_norm_eps": above_zero}
_BIASES: dict[str, Check] = {"attention_bias": flag, "mlp_bias": flag}
_WINDOW: dict[str, Check] = {"sliding_window": _POSITIONS}
_KINDS: dict[str, Check] = {"layer_types": listed(one_of(*LAYER_TYPES))}
_QWEN_WINDOW: dict[str, Check] = {
    **_WINDOW,
    **_KINDS,
    "use_sliding_window": flag,
    "max_window_layers": count(0, MAX_LAYERS),
}
_EXPERT_CHOICE: dict[str, Check] = {
    "num_experts_per_tok": _EXPERTS,
    "norm_topk_prob": flag,
    "moe_intermediate_size": _WIDTH,
}
_QWEN_EXPERTS: dict[str, Check] = {
    **_EXPERT_CHOICE,
    "num_experts": _EXPERTS,
    "decoder_sparse_step": count(1, MAX_LAYERS),
    "mlp_only_layers": listed(count(0, MAX_LAYERS - 1)),
}
_SPARSE: dict[str, Check] = {"num_local_experts": _EXPERTS, "num_experts_per_tok": _EXPERTS}
_COMMON: dict[str, Check] = {**_SIZES, **_ROPE, **_GROUPED}
_GEMMA: dict[str, Check] = {
    **_COMMON,
    **_HEAD,
    **_RMS,
    "attention_bias": flag,
    "use_bidirectional_attention": only(False),
}
_GEMMA_NEXT: dict[str, Check] = {
    **_GEMMA,
    **_WINDOW,
    **_KINDS,
    "hidden_activation": _ACTIVATIONS,
    "query_pre_attn_scalar": count(1, 2**20),
    "final_logit_softcapping": above_zero,
    "attn_logit_softcapping": above_zero,
}
_DEEPSEEK: dict[str, Check] = {
    **_COMMON,
    **_RMS,
    **_EXPERT_CHOICE,
    "attention_bias": flag,
    "first_k_dense_replace": count(0, MAX_LAYERS),
    "kv_lora_rank": _WIDTH,
    "q_lora_rank": _WIDTH,
    "n_group": _EXPERTS,
    "topk_group": _EXPERTS,
    "n_routed_experts": _EXPERTS,
    "n_shared_experts": _EXPERTS,
    "qk_nope_head_dim": _HEAD_WIDTH,
    "qk_rope_head_dim": _HEAD_WIDTH,
    "v_head_dim": _HEAD_WIDTH,
    "routed_scaling_factor": number,
    "num_nextn_predict_layers": count(0, 16),
    "moe_layer_freq": only(1),
}

SETTINGS: dict[str, dict[str, Check]] = {
    "llama": {**_COMMON, **_HEAD, **_RMS, **_BIASES},
    "mistral": {**_COMMON, **_HEAD, **_RMS, **_WINDOW},
    "qwen2": {**_COMMON, **_HEAD, **_RMS, **_QWEN_WINDOW},
    "qwen3": {**_COMMON, **_HEAD, **_RMS, **_QWEN_WINDOW, "attention_bias": flag},
    "qwen2_moe": {
        **_COMMON,
        **_RMS,
        **_QWEN_WINDOW,
        **_QWEN_EXPERTS,
        "sliding_window": count(0, 2**30),
        "shared_expert_intermediate_size": _WIDTH,
        "qkv_bias": flag,
    },
    "qwen3_moe": {
        **_COMMON,
        **_HEAD,
        **_RMS,
        **_QWEN_EXPERTS,
        **_WINDOW,
        "use_sliding_window": flag,
        "attention_bias": flag,
    },
    "mixtral": {**_COMMON, **_HEAD, **_RMS, **_WINDOW, **_SPARSE},
    "gemma": _GEMMA,
    "gemma2": _GEMMA_NEXT,
    "gemma3_text": {
        **_GEMMA_NEXT,
        "rope_parameters": rope_table_by_layer_type,
        "rope_local_base_freq": above_zero,
        "sliding_window_pattern": _LAYER_COUNT,
    },
    "phi": {**_COMMON, **_PARTIAL, **_LAYER_NORM, "qk_layernorm": flag},
    "phi3": {
        **_COMMON,
        **_PARTIAL,
        **_RMS,
        **_WINDOW,
        "original_max_position_embeddings": _POSITIONS,
    },
    "olmo": {**_COMMON, "attention_bias": flag, "clip_qkv": above_zero},
    "olmo2": {**_COMMON, **_RMS, "attention_bias": flag},
    "granite": {
        **_COMMON,
        **_RMS,
        **_BIASES,
        "embedding_multiplier": number,
        "logits_scaling": above_zero,
        "residual_multiplier": number,
        "attention_multiplier": number,
    },
    "smollm3": {
        **_COMMON,
        **_RMS,
        **_BIASES,
        **_WINDOW,
        **_KINDS,
        "use_sliding_window": flag,
        "no_rope_layers": listed(count(0, 1)),
        "no_rope_layer_interval": _LAYER_COUNT,
    },
    "cohere": {
        **_COMMON,
        **_LAYER_NORM,
        "logit_scale": number,
        "attention_bias": flag,
        "use_qk_norm": flag,
    },
    "cohere2": {
        **_COMMON,
        **_LAYER_NORM,
        **_WINDOW,
        **_KINDS,
        "logit_scale": number,
        "attention_bias": flag,
        "sliding_window_pattern": _LAYER_COUNT,
    },
    "exaone4": {**_COMMON, **_HEAD, **_RMS, **_WINDOW, **_KINDS},
    "glm4": {**_COMMON, **_HEAD, **_PARTIAL, **_RMS, "attention_bias": flag},
    "stablelm": {
        **_COMMON,
        **_PARTIAL,
        **_LAYER_NORM,
        "use_qkv_bias": flag,
        "qk_layernorm": flag,
        "use_parallel_residual": flag,
    },
    "starcoder2": {**_COMMON, **_WINDOW, "norm_epsilon": above_zero, "use_bias": flag},
    "gpt_neox": {
        **_SIZES,
        **_ROPE,
        **_LAYER_NORM,
        "rotary_pct": fraction,
        "rotary_emb_base": above_zero,
        "use_parallel_residual": flag,
        "attention_bias": flag,
    },
    "gpt_oss": {
        **_COMMON,
        **_HEAD,
        **_RMS,
        **_WINDOW,
        **_KINDS,
        **_SPARSE,
        "attention_bias": flag,
        "swiglu_alpha": number,
        "swiglu_limit": above_zero,
    },
    "deepseek_v2": {
        **_DEEPSEEK,
        "mlp_bias": flag,
        "topk_method": one_of("greedy", "group_limited_greedy"),
        "scoring_func": only("softmax"),
    },
    "deepseek_v3": {
        **_DEEPSEEK,
        "rope_interleave": flag,
        "topk_method": only("noaux_tc"),
        "scoring_func": only("sigmoid"),
    },
    "helium": {**_COMMON, **_HEAD, **_RMS, **_BIASES},
    "nemotron": {**_COMMON, **_HEAD, **_PARTIAL, **_BIASES, "norm_eps": above_zero},
    "gpt2": {
        **_VOCABULARY,
        "n_embd": count(1, 2**20),
        "n_layer": _LAYER_COUNT,
        "n_head": _HEADS,
        "n_positions": _POSITIONS,
        "n_inner": _WIDTH,
        "activation_function": _ACTIVATIONS,
        "layer_norm_epsilon": above_zero,
        "scale_attn_weights": flag,
        # Both go by the layer's own number or by a kernel that a slice does not have.
        "scale_attn_by_inverse_layer_idx": only(False),
        "reorder_and_upcast_attn": only(False),
    },
    "opt": {
        **_VOCABULARY,
        "hidden_size": count(1, 2**20),
        "num_hidden_layers": _LAYER_COUNT,
        "ffn_dim": _WIDTH,
        "num_attention_heads": _HEADS,
        "max_position_embeddings": _POSITIONS,
        "do_layer_norm_before": flag,
        "_remove_final_layer_norm": flag,
        "word_embed_proj_dim": count(1, 2**20),
        "activation_function": _ACTIVATIONS,
        "enable_bias": flag,
        "layer_norm_elementwise_affine": flag,
    },
    "bloom": {
        **_VOCABULARY,
        "hidden_size": count(1, 2**20),
        "n_layer": _LAYER_COUNT,
        "n_head": _HEADS,
        "seq_length": _POSITIONS,
        "layer_norm_epsilon": above_zero,
        "apply_residual_connection_post_layernorm": flag,
        "slow_but_exact": only(False),
    },
    "falcon": {
        **_VOCABULARY,
        **_ROPE,
        "hidden_size": count(1, 2**20),
        "num_hidden_layers": _LAYER_COUNT,
        "num_attention_heads": _HEADS,
        "max_position_embeddings": _POSITIONS,
        "num_kv_heads": _HEADS,
        "num_ln_in_parallel_attn": count(1, 2),
        "layer_norm_epsilon": above_zero,
        "alibi": flag,
        "new_decoder_architecture": flag,
        "multi_query": flag,
        "parallel_attn": flag,
        "bias": flag,
        "ffn_hidden_size": _WIDTH,
        "activation": _ACTIVATIONS,
    },
}
"""By `model_type`."""
