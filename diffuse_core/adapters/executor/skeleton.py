"""An architecture's own module, cut to a Slice, without its weights.

The module is the one of `transformers`, built from a configuration whose layer count and
per-layer lists are cut to the Slice: the arithmetic is the library's own, so a Slice computes
what the whole model computes there. Parameters are on the meta device and take no memory.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.domain.slices import Slice

PROVEN = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures whose Slices are tested to be bit-equal to the whole."""

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

_CONTRADICTIONS = (ValueError, KeyError, TypeError, RuntimeError, StrictDataclassError)
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


class Plan:
    """A model's configuration, from which modules for any part of it are built."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Check the configuration.

        Raises:
            ModelUnusable: an architecture that is not proven, or settings that contradict.
        """
        settings = dict(config)
        kind = settings.pop("model_type", None)
        if kind not in PROVEN:
            raise ModelUnusable(
                f"the architecture {kind!r} is not proven to give the same text in slices; "
                f"use one of {', '.join(PROVEN)}"
            )
        self._class: Any = CONFIG_MAPPING[kind]
        # Head and embedding are placed by hand: a slice may hold one without the other.
        self.tied = bool(settings.pop("tie_word_embeddings", False))
        self._settings = settings
        whole = self._configuration({})
        self.layers: int = whole.num_hidden_layers
        self.hidden: int = whole.hidden_size
        self.vocab: int = whole.vocab_size
        self.context: int = whole.max_position_embeddings
        self._layer_types: list[str] | None = getattr(whole, "layer_types", None)

    def build(self, part: Slice, dtype: torch.dtype) -> nn.Module:
        """The module of `part`: a …ForCausalLM without what the part does not hold.

        A part without the first layer has no embedding, one without the last has an identity
        for the final norm and no head. Rotary tables are real, parameters are on "meta".
        """
        changes: dict[str, object] = {"num_hidden_layers": len(part), "dtype": dtype}
        if self._layer_types is not None:
            changes["layer_types"] = self._layer_types[part.start : part.end]
        config = self._configuration(changes)
        build: Any = AutoModelForCausalLM.from_config
        try:
            with torch.device("meta"):
                model = build(config, trust_remote_code=False)
            body = model.model
            body.rotary_emb = type(body.rotary_emb)(config=config)
        except _CONTRADICTIONS as error:
            raise ModelUnusable(f"the model's settings contradict each other: {error}") from error
        if part.start > 0:
            body.embed_tokens = None
        if part.end < self.layers:
            body.norm = nn.Identity()
            model.lm_head = None
        module: nn.Module = model.eval().requires_grad_(False)
        return module

    def _configuration(self, changes: Mapping[str, object]) -> Any:
        settings: dict[str, Any] = {**self._settings, **changes}
        try:
            return self._class(
                **settings, tie_word_embeddings=False, attn_implementation="sdpa", use_cache=True
            )
        except _CONTRADICTIONS as error:
            raise ModelUnusable(f"the model's settings contradict each other: {error}") from error


def global_name(local: str, part: Slice) -> str:
    """The whole model's name of a parameter of the module of `part`."""
    match = _LAYER.fullmatch(local)
    return f"model.layers.{int(match[1]) + part.start}.{match[2]}" if match else local


def layer_of(name: str) -> int | None:
    """The layer that a parameter of the whole model belongs to."""
    match = _LAYER.fullmatch(name)
    return int(match[1]) if match else None


def cache_keyword(module: nn.Module) -> str:
    """What this version of `transformers` calls the cache (renamed in 5.24)."""
    parameters = inspect.signature(module.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
