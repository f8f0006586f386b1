"""Configurations of every proven architecture: what differs between real models, in small."""

from __future__ import annotations

FULL, SLIDING = "full_attention", "sliding_attention"
MIXED = [SLIDING, SLIDING, FULL, SLIDING, FULL, FULL]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
TIED = {"tie_word_embeddings": True}
UNTIED = {"tie_word_embeddings": False}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
DEEPSEEK = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
GEMMA3_ROPE = {
    FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 100.0},
}
GPT = {"num_key_value_heads": None, "intermediate_size": None}

CASES: dict[str, dict[str, dict[str, object]]] = {
    "llama": {
        "plain": {},
        "tied": TIED,
        "biased": {"attention_bias": True, "mlp_bias": True, "head_dim": 16},
        "llama3": {"rope_parameters": LLAMA3},
        "yarn": {"rope_parameters": YARN},
        "linear": {"rope_parameters": LINEAR, **TIED},
    },
    "mistral": {
        "plain": {"sliding_window": None, "head_dim": 16},
        "window": {"sliding_window": 8, **TIED},
    },
    "qwen2": {
        "plain": {},
        "tied": TIED,
        "mixed": {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED},
        "upper window": {
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 4,
        },
    },
    "qwen3": {
        "plain": {"head_dim": 16},
        "tied": {"head_dim": 8, **TIED},
        "mixed": {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED},
    },
    "qwen2_moe": {
        "plain": {**MOE, "shared_expert_intermediate_size": 24},
        "dense between": {
            **MOE,
            "shared_expert_intermediate_size": 24,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "qkv_bias": False,
        },
    },
    "qwen3_moe": {
        "plain": {**MOE, "head_dim": 16, "norm_topk_prob": True},
        "dense between": {
            **MOE,
            "head_dim": 8,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [1, 4],
            **TIED,
        },
    },
    "mixtral": {
        "plain": {"num_local_experts": 4, "sliding_window": None},
        "window": {"num_local_experts": 4, "num_experts_per_tok": 1, "sliding_window": 8},
    },
    "gemma": {
        "tied": {"head_dim": 16},
        "untied": {"head_dim": 8, **UNTIED},
    },
    "gemma2": {
        "alternating": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
        "uncapped": {
            "head_dim": 16,
            "sliding_window": 8,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
    },
    "gemma3_text": {
        "mixed": {"head_dim": 16, "sliding_window": 8, "layer_types": MIXED},
        "pattern": {
            "head_dim": 8,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "rope_parameters": GEMMA3_ROPE,
            "final_logit_softcapping": 20.0,
            **UNTIED,
        },
    },
    "phi": {
        "plain": {"partial_rotary_factor": 0.5},
        "normed": {"qk_layernorm": True, "num_key_value_heads": 4},
    },
    "phi3": {
        "plain": {"sliding_window": None, "partial_rotary_factor": 0.5},
        "window": {"sliding_window": 8, **TIED},
    },
    "olmo": {"plain": {}, "clipped": {"clip_qkv": 2.0, "attention_bias": True, **TIED}},
    "olmo2": {"plain": {}, "biased": {"attention_bias": True, **TIED}},
    "granite": {
        "scaled": {
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.0625,
            **UNTIED,
        },
        "tied": {"attention_bias": True, "mlp_bias": True, **TIED},
    },
    "smollm3": {
        "plain": {"no_rope_layers": [1, 1, 0, 1, 0, 1]},
        "interval": {"no_rope_layer_interval": 4, **UNTIED},
        "mixed": {
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": MIXED,
            "no_rope_layers": [0, 1, 1, 0, 1, 1],
        },
    },
    "cohere": {
        "plain": {"logit_scale": 0.25},
        "normed": {"use_qk_norm": True, "attention_bias": True, **UNTIED},
    },
    "cohere2": {
        "pattern": {"sliding_window": 8, "logit_scale": 0.25},
        "mixed": {"sliding_window": 8, "layer_types": MIXED, "attention_bias": True, **UNTIED},
    },
    "exaone4": {
        "pattern": {"sliding_window": 8, "sliding_window_pattern": 3},
        "no window": {"sliding_window": None, "layer_types": [FULL] * 6, **TIED},
    },
    "glm4": {
        "plain": {"head_dim": 8, "partial_rotary_factor": 0.5},
        "biased": {"head_dim": 16, "attention_bias": True, **TIED},
    },
    "stablelm": {
        "plain": {},
        "parallel": {
            "use_parallel_residual": True,
            "qk_layernorm": True,
            "use_qkv_bias": True,
            "partial_rotary_factor": 0.5,
        },
    },
    "starcoder2": {
        "plain": {"sliding_window": None},
        "window": {"sliding_window": 8, "use_bias": False, **UNTIED},
    },
    "gpt_neox": {
        "parallel": {"num_key_value_heads": None},
        "serial": {"use_parallel_residual": False, "attention_bias": False, **TIED},
    },
    "gpt_oss": {
        "alternating": {"head_dim": 8, "sliding_window": 8, "num_local_experts": 4},
        "mixed": {
            "head_dim": 16,
            "sliding_window": 8,
            "num_local_experts": 4,
            "layer_types": MIXED,
            "rope_parameters": LINEAR,
        },
    },
    "deepseek_v2": {
        "dense first": {**DEEPSEEK, "first_k_dense_replace": 2, "q_lora_rank": 16},
        "groups": {
            **DEEPSEEK,
            "first_k_dense_replace": 1,
            "q_lora_rank": None,
            "topk_method": "group_limited_greedy",
            "n_group": 2,
            "topk_group": 1,
        },
    },
    "deepseek_v3": {
        "dense first": {
            **DEEPSEEK,
            "first_k_dense_replace": 2,
            "q_lora_rank": 16,
            "n_group": 2,
            "topk_group": 1,
        },
        "no query rank": {
            **DEEPSEEK,
            "first_k_dense_replace": 4,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    },
    "helium": {"plain": {"head_dim": 8}, "tied": {"head_dim": 8, "mlp_bias": True, **TIED}},
    "nemotron": {
        "plain": {"partial_rotary_factor": 0.5},
        "biased": {"attention_bias": True, "mlp_bias": True, **TIED},
    },
    "gpt2": {
        "tied": GPT,
        "scaled by layer": {**GPT, "scale_attn_by_inverse_layer_idx": True, **UNTIED},
    },
    "opt": {
        "plain": {"ffn_dim": 48},
        "projected": {"ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
        "bare": {
            "ffn_dim": 48,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
            **UNTIED,
        },
    },
    "bloom": {
        "plain": {"n_head": 4},
        "post norm": {"n_head": 4, "apply_residual_connection_post_layernorm": True, **UNTIED},
    },
    "falcon": {
        "rotary": {},
        "alibi": {"alibi": True, "bias": True, "multi_query": False},
        "new": {"new_decoder_architecture": True, "num_kv_heads": 2, **UNTIED},
        "serial": {"parallel_attn": False, "alibi": True, "multi_query": True},
    },
}
"""By `model_type` and a word for what is special; in addition to the sizes of `tiny.SIZES`."""
