"""Which of a model's parameters belong to which part of it, by their names in `transformers`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD = "lm_head.weight"
_HEAD_NAMES = frozenset({HEAD, "lm_head.bias"})


@dataclass(frozen=True)
class Layout:
    """Names of modules in the body; those in `first` run before the layers, in `last` after."""

    body: str = "model"
    layers: str = "layers"
    embedding: str = "embed_tokens"
    norm: str | None = "norm"
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """What every name begins with but the head's: the library's base_model_prefix."""
        return self.body.partition(".")[0] + "."

    @cached_property
    def embedding_name(self) -> str:
        """The matrix that a vocabulary's rows are in."""
        return f"{self.body}.{self.embedding}.weight"

    @cached_property
    def first_names(self) -> frozenset[str]:
        """Parameters that a first slice has outside its layers."""
        return self._both(self.embedding, *self.first)

    @cached_property
    def last_names(self) -> frozenset[str]:
        """Parameters that a last slice has outside its layers, the head's among them."""
        ends = self.last if self.norm is None else (self.norm, *self.last)
        return self._both(*ends) | _HEAD_NAMES

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Parameters that no model is without; the head may be the embedding."""
        ends = () if self.norm is None else (f"{self.body}.{self.norm}.weight",)
        return (self.embedding_name, *ends)

    def layer_of(self, name: str) -> int | None:
        """The layer that a parameter belongs to; None for one outside the layers."""
        match = self._layer.match(name)
        return int(match[1]) if match else None

    @cached_property
    def _layer(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(f'{self.body}.{self.layers}')}\.(\d{{1,6}})\.")

    def _both(self, *modules: str) -> frozenset[str]:
        return frozenset(f"{self.body}.{m}.{end}" for m in modules for end in ("weight", "bias"))


_LAYOUTS: Mapping[str, Layout] = {
    "bloom": Layout(
        "transformer", "h", "word_embeddings", "ln_f", first=("word_embeddings_layernorm",)
    ),
    "falcon": Layout("transformer", "h", "word_embeddings", "ln_f"),
    "gpt2": Layout("transformer", "h", "wte", "ln_f", first=("wpe",)),
    "gpt_neox": Layout("gpt_neox", "layers", "embed_in", "final_layer_norm"),
    # Its norm has no numbers.
    "olmo": Layout(norm=None),
    # The oldest and one of the published ones end without a norm.
    "opt": Layout(
        "model.decoder",
        norm=None,
        first=("embed_positions", "project_in"),
        last=("final_layer_norm", "project_out"),
    ),
    "phi": Layout(norm="final_layernorm"),
}
_COMMON = Layout()


def layout_of(config: Mapping[str, object]) -> Layout:
    """The layout of a cleaned configuration's architecture."""
    return _LAYOUTS.get(str(config["model_type"]), _COMMON)
