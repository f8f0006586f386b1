"""Loading a Slice for the lean engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from diffuse_core.adapters.executor.lean.engine import Ends, LeanEngine
from diffuse_core.adapters.executor.lean.forms import Forms, Piece
from diffuse_core.adapters.executor.lean.invariance import proven_alone
from diffuse_core.adapters.executor.lean.layer import Layer, LayerWeights
from diffuse_core.adapters.executor.lean.norm import Norm
from diffuse_core.adapters.executor.lean.rotary import Rotary
from diffuse_core.adapters.executor.reading import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.adapters.executor.lean.matrices import Matrix
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import Progress, WeightSource

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def lean_slice(
    source: WeightSource,
    family: Family,
    part: Slice,
    contract: Contract,
    rotary: Rotary,
    progress: Progress,
    device: str = "cpu",
) -> LeanEngine:
    """Read the tensors of `part` into the forms of `contract`.

    At its peak this takes what is held and some 20 MiB. Names and shapes were checked before.

    Raises:
        ModelUnusable: the files changed while they were read.
    """
    names = slice_names(source, family, part, source.names)
    fetched = fetch(source, names, progress)
    steps = len(part) + (part.start == 0) + (part.end == family.layers)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(fetched + (1 - fetched) * done / steps)

    with torch.inference_mode():
        reader = _Reader(source, family, Forms(source, contract, device))
        ends = reader.ends(part, step)
        layers = []
        for number in range(part.start, part.end):
            layers.append(Layer(family, number, reader.layer(number)))
            step()
        matrices = [m for layer in layers for m in _matrices(layer.weights)]
        tried = [*matrices, ends.head] if ends.head else matrices
        alone = proven_alone(tried, reader.dtype, device)
    return LeanEngine(family, part, layers, ends, rotary, reader.dtype, device, alone)


def slice_names(
    source: WeightSource, family: Family, part: Slice, known: Iterable[str]
) -> list[str]:
    """Every tensor that `part` needs, of those `known` to the architecture."""
    names = set()
    for name in known:
        layer = layer_of(name)
        if layer is not None and part.start <= layer < part.end:
            names.add(name)
    if part.start == 0:
        names.add(EMBEDDING)
    if part.end == family.layers:
        names |= {NORM, HEAD if HEAD in source.names else EMBEDDING}
    return sorted(names)


def rotary_of(module: Any) -> Rotary:
    """The rotary positions of a whole model's `transformers` module."""
    found = module.model.rotary_emb
    return Rotary(found.inv_freq.to(torch.float32), float(found.attention_scaling))


def layer_of(name: str) -> int | None:
    """The layer that a parameter of the whole model belongs to."""
    head, _, rest = name.partition("model.layers.")
    number, _, own = rest.partition(".")
    return int(number) if not head and number.isdecimal() and own else None


def _matrices(weights: LayerWeights) -> Iterable[Matrix]:
    return (weights.qkv, weights.output, weights.gate, weights.up, weights.down)


class _Reader:
    def __init__(self, source: WeightSource, family: Family, forms: Forms) -> None:
        self._names = source.names
        self._family = family
        self._forms = forms
        self.dtype = forms.dtype

    def ends(self, part: Slice, step: Callable[[], None]) -> Ends:
        """What the slice's ends hold beside layers.

        A tied head is laid out apart from the embedding: one is multiplied, the other looked up.
        """
        table, head, norm = None, None, None
        if part.start == 0:
            table = self._forms.embedding(EMBEDDING)
            step()
        if part.end == self._family.layers:
            head = self._forms.head(HEAD if HEAD in self._names else EMBEDDING)
            norm = self._norm(NORM)
            step()
        return Ends(table, norm, head)

    def layer(self, number: int) -> LayerWeights:
        width = self._family.head_dim if self._family.rotary[number] else 0
        at = f"model.layers.{number}"
        attention, feed = f"{at}.self_attn", f"{at}.mlp"
        qkv = [
            Piece(f"{attention}.q_proj", width),
            Piece(f"{attention}.k_proj", width),
            Piece(f"{attention}.v_proj"),
        ]
        return LayerWeights(
            input_norm=self._norm(f"{at}.input_layernorm.weight"),
            qkv=self._matrix(*qkv),
            query_norm=self._optional(Piece(f"{attention}.q_norm.weight", width)),
            key_norm=self._optional(Piece(f"{attention}.k_norm.weight", width)),
            output=self._matrix(Piece(f"{attention}.o_proj")),
            feed_norm=self._norm(f"{at}.post_attention_layernorm.weight"),
            gate=self._matrix(Piece(f"{feed}.gate_proj")),
            up=self._matrix(Piece(f"{feed}.up_proj")),
            down=self._matrix(Piece(f"{feed}.down_proj")),
        )

    def _norm(self, name: str) -> Norm:
        return Norm(self._forms.vector(Piece(name)), self._family.eps)

    def _matrix(self, *modules: Piece) -> Matrix:
        weights = [Piece(f"{one.name}.weight", one.interleave) for one in modules]
        biases = [Piece(f"{one.name}.bias", one.interleave) for one in modules]
        here = [bias for bias in biases if bias.name in self._names]
        return self._forms.matrix(weights, biases if len(here) == len(biases) else ())

    def _optional(self, piece: Piece) -> torch.Tensor | None:
        return self._forms.vector(piece) if piece.name in self._names else None
