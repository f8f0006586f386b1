"""Where the architectures of `transformers` keep their parts: what a cut has to know of each.

A body is cut by keeping its own layers, so what depends on a layer's number (kind of attention,
dense or sparse, rotary or not) is the whole model's. Left to say is what a body does *before* its
first layer, which only the first Stage may do, and *after* its last, which only the last may.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping

Neutral = Literal["nothing", "unchanged", "zero", "one"]
"""What takes a part's place: None, a module that gives back what it gets, a module that gives 0,
the number 1."""


@dataclass(frozen=True)
class Architecture:
    """Paths are attributes of the …ForCausalLM module; `before` and `after` are of the body."""

    body: str = "model"
    layers: str = "layers"
    embedding: str = "embed_tokens"
    norm: str = "norm"
    head: str = "lm_head"
    before: Mapping[str, Neutral] = field(default_factory=dict)
    """Beside the embedding, what runs before the first layer, and what stands for it elsewhere."""
    after: Mapping[str, Neutral] = field(default_factory=dict)
    """Beside the norm, what runs after the last layer, and what stands for it elsewhere."""
    per_layer: tuple[str, ...] = ("layer_types",)
    """Settings with an entry for each layer that the body or its cache reads while it runs."""

    @property
    def embedding_name(self) -> str:
        """The whole model's name of the embedding matrix."""
        return f"{self.body}.{self.embedding}.weight"

    @property
    def head_name(self) -> str:
        """The whole model's name of the head's matrix."""
        return f"{self.head}.weight"


_COMMON = Architecture()
_GPT2 = Architecture(
    body="transformer",
    layers="h",
    embedding="wte",
    norm="ln_f",
    before={"wpe": "zero"},
)
_BLOOM = Architecture(
    body="transformer",
    layers="h",
    embedding="word_embeddings",
    norm="ln_f",
    before={"word_embeddings_layernorm": "unchanged"},
)
_FALCON = Architecture(body="transformer", layers="h", embedding="word_embeddings", norm="ln_f")
_OPT = Architecture(
    body="model.decoder",
    norm="final_layer_norm",
    before={"embed_positions": "zero", "project_in": "nothing"},
    after={"project_out": "nothing"},
)
_NEOX = Architecture(body="gpt_neox", embedding="embed_in", norm="final_layer_norm")
_GRANITE = Architecture(before={"embedding_multiplier": "one"})
_PHI = Architecture(norm="final_layernorm")

ARCHITECTURES: dict[str, Architecture] = {
    "llama": _COMMON,
    "mistral": _COMMON,
    "qwen2": _COMMON,
    "qwen3": _COMMON,
    "qwen2_moe": _COMMON,
    "qwen3_moe": _COMMON,
    "mixtral": _COMMON,
    "gemma": _COMMON,
    "gemma2": _COMMON,
    "gemma3_text": _COMMON,
    "phi": _PHI,
    "phi3": _COMMON,
    "olmo": _COMMON,
    "olmo2": _COMMON,
    "granite": _GRANITE,
    "smollm3": _COMMON,
    "cohere": _COMMON,
    "cohere2": _COMMON,
    "exaone4": _COMMON,
    "glm4": _COMMON,
    "stablelm": _COMMON,
    "starcoder2": _COMMON,
    "gpt_neox": _NEOX,
    "gpt_oss": _COMMON,
    "deepseek_v2": _COMMON,
    "deepseek_v3": _COMMON,
    "helium": _COMMON,
    "nemotron": _COMMON,
    "gpt2": _GPT2,
    "opt": _OPT,
    "bloom": _BLOOM,
    "falcon": _FALCON,
}
"""By `model_type`. Each is proven by tests at every cut, and again whenever one is loaded."""

PROVEN = tuple(ARCHITECTURES)


def architecture_of(kind: object) -> Architecture:
    """The entry of a `model_type`.

    Raises:
        ModelUnusable: there is none.
    """
    found = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ModelUnusable(
            f"the architecture {str(kind)[:60]!r} is not proven to give the same text in slices; "
            f"use one of {', '.join(PROVEN)}"
        )
    return found
