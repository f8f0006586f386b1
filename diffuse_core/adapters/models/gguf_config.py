"""From GGUF's words to those of `transformers`: settings and tensor names.

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, the names those
that llama.cpp's converter writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.model_config import clean_config
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ARCHITECTURES = ("llama", "qwen2", "qwen3", "smollm3")
"""`general.architecture`s that can be read. Mistral's files say llama."""

PERMUTED = ("llama", "smollm3")
"""Those of which llama.cpp's converter stores the rows of queries and keys in another order."""

ROPE_FACTORS = "rope_freqs.weight"
"""Llama 3's rotary scaling, stored as a tensor of divisors instead of as settings."""

_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d{1,6})\.([a-z_]+)\.(weight|bias)")
_SETTINGS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
}


def parameter_name(name: str) -> str | None:
    """The `transformers` name of a GGUF tensor, or None when it is not of the proven ones."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _INSIDE:
        return None
    return f"model.layers.{int(match[1])}.{_INSIDE[match[2]]}.{match[3]}"


def config_from_gguf(
    metadata: Mapping[str, object],
    shapes: Mapping[str, tuple[int, ...]],
    rope_factors: Iterable[float] | None,
    where: str,
) -> dict[str, object]:
    """The checked settings; `shapes` are the tensors' by GGUF name.

    `rope_factors` are the numbers of the tensor ROPE_FACTORS, when there is one.

    Raises:
        ModelUnusable: an architecture or a feature that is not proven equal.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelUnusable(
            f"{where}: the architecture {architecture!r} is not supported for GGUF files; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    own = _Own(metadata, str(architecture), where)
    own.refuse_unproven(shapes)
    raw: dict[str, object] = {"model_type": architecture, "hidden_act": "silu"}
    for key, setting in _SETTINGS.items():
        value = own.get(key)
        if value is not None:
            raw[setting] = value
    # Llama's files may leave the head's width out; there it is the number of rotary dimensions.
    raw.setdefault("head_dim", own.get("rope.dimension_count"))
    raw.setdefault("num_key_value_heads", raw.get("num_attention_heads"))
    raw["vocab_size"] = shapes.get("token_embd.weight", (0,))[0]
    raw["tie_word_embeddings"] = "output.weight" not in shapes
    raw["attention_bias"] = "blk.0.attn_q.bias" in shapes
    raw["mlp_bias"] = "blk.0.ffn_gate.bias" in shapes
    raw["rope_scaling"] = own.rope(rope_factors)
    if architecture == "qwen2":
        del raw["attention_bias"], raw["mlp_bias"]
    return clean_config(raw, where)


class _Own:
    """The keys under the architecture's own prefix."""

    def __init__(self, metadata: Mapping[str, object], architecture: str, where: str) -> None:
        self.metadata = metadata
        self.architecture = architecture
        self.where = where

    def get(self, key: str) -> object:
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> float:
        value = self.get(key)
        return value if isinstance(value, int | float) else 0

    def refuse_unproven(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if self.number("expert_count"):
            raise self.unproven("a mixture of experts")
        window = self.number("attention.sliding_window")
        if 0 < window < self.number("context_length"):
            raise self.unproven("a sliding attention window")
        width, rotary = self.number("attention.key_length"), self.number("rope.dimension_count")
        if width and rotary and width != rotary:
            raise self.unproven("rotary positions on a part of each head")
        for name in shapes:
            if parameter_name(name) is None and name != ROPE_FACTORS:
                raise self.unproven(f"a tensor {name!r}")

    def unproven(self, what: str) -> ModelUnusable:
        return ModelUnusable(
            f"{self.where} has {what}, which is not proven to give the same text in slices; "
            "use another model"
        )

    def rope(self, factors: Iterable[float] | None) -> dict[str, object] | None:
        kind = self.get("rope.scaling.type")
        if factors is not None:
            return self.llama3(list(factors))
        if kind == "linear":
            return {"rope_type": "linear", "factor": self.get("rope.scaling.factor")}
        if kind in (None, "none"):
            return None
        raise self.unproven(f"the rotary scaling {kind!r}")

    def llama3(self, factors: list[float]) -> dict[str, object]:
        """Llama 3.1's settings, when the stored divisors are those that they give."""
        theta, count = self.number("rope.freq_base"), len(factors)
        largest = max(factors, default=1.0)
        wanted = [_llama3_divisor(theta ** (i / max(count, 1)), largest) for i in range(count)]
        if theta <= 0 or any(
            abs(have - want) > 1e-4 * want for have, want in zip(factors, wanted, strict=True)
        ):
            raise self.unproven("rotary divisors other than Llama 3's")
        return {
            "rope_type": "llama3",
            "factor": round(largest, 4),
            "low_freq_factor": _LOW,
            "high_freq_factor": _HIGH,
            "original_max_position_embeddings": _TRAINED,
        }


_LOW, _HIGH, _TRAINED = 1.0, 4.0, 8192


def _llama3_divisor(inverse_frequency: float, factor: float) -> float:
    """What Llama 3.1 divides a rotary frequency by (`transformers`: rope_type "llama3")."""
    wavelength = 2 * 3.141592653589793 * inverse_frequency
    if wavelength < _TRAINED / _HIGH:
        return 1.0
    if wavelength > _TRAINED / _LOW:
        return factor
    smooth = (_TRAINED / wavelength - _LOW) / (_HIGH - _LOW)
    return 1.0 / ((1.0 - smooth) / factor + smooth)
