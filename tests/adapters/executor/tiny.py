"""Tiny random models."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.adapters.executor.state_source import StateSource

SIZES = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    # Wide enough that the logits of random weights differ clearly.
    "initializer_range": 0.3,
}


def tiny_model(
    kind: str, layers: int = 6, dtype: torch.dtype = torch.float32, **settings: object
) -> tuple[StateSource, torch.nn.Module]:
    """A random model: a source of its weights, and the model itself, the reference."""
    torch.manual_seed(len(kind) * 100 + layers)
    config = CONFIG_MAPPING[kind](**{**SIZES, "num_hidden_layers": layers, **settings})
    model = AutoModelForCausalLM.from_config(config).eval()
    for tensor in model.state_dict().values():
        if tensor.dim() == 1:
            # Biases are zero and norms one when new: nobody would miss them.
            tensor += 0.1 * torch.randn(tensor.shape)
    source = StateSource(model)
    if dtype != torch.float32:
        # Made anew rather than cast: a cast would round the rotary frequencies too.
        state = model.state_dict()
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        model.load_state_dict(state)
    model.generation_config.eos_token_id = None
    return source, model
