"""One layer of the llama-like family, over rows of several Sessions at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from diffuse_core.adapters.executor.lean.unpacked import for_pieces

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.lean.attention import Seating
    from diffuse_core.adapters.executor.lean.family import Family
    from diffuse_core.adapters.executor.lean.matrices import Matrix
    from diffuse_core.adapters.executor.lean.norm import Norm


@dataclass(frozen=True)
class LayerWeights:
    """What a layer holds. Rows of `qkv` are those of q, k and v, q and k interleaved."""

    input_norm: Norm
    qkv: Matrix
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: Matrix
    feed_norm: Norm
    gate: Matrix
    up: Matrix
    down: Matrix

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        norms = (self.input_norm, self.query_norm, self.key_norm, self.feed_norm)
        matrices = (self.qkv, self.output, self.gate, self.up, self.down)
        return sum(n.nbytes for n in norms if n is not None) + sum(m.nbytes for m in matrices)

    def for_pieces(self) -> LayerWeights:
        """The same, as it is multiplied with the rows of large pieces of prompts."""
        return replace(
            self,
            qkv=for_pieces(self.qkv),
            output=for_pieces(self.output),
            gate=for_pieces(self.gate),
            up=for_pieces(self.up),
            down=for_pieces(self.down),
        )


class Layer:
    """Runs one layer."""

    def __init__(self, family: Family, number: int, weights: LayerWeights) -> None:
        self.weights = weights
        self._family = family
        self._number = number
        self._eps = family.eps
        self._head = (family.head_dim,)
        self._rotary = family.rotary[number]

    def for_pieces(self) -> Layer:
        """The same layer for large pieces of prompts; it holds nothing more."""
        return Layer(self._family, self._number, self.weights.for_pieces())

    def mix(
        self, x: torch.Tensor, turns: torch.Tensor, seating: Seating, slot: int
    ) -> torch.Tensor:
        """Hidden states after the attention, whose KV is at `slot` of each cache.

        Args:
            x: hidden states (n, width).
            turns: rotary factors (n, 1, head_dim / 2), complex.
            seating: whose the rows are.
            slot: the layer's place in the caches of this pass.
        """
        own = self.weights
        seating.flat.copy_(own.qkv(own.input_norm(x)))
        if own.query_norm is not None:
            self._normalise(seating.queries, own.query_norm)
        if own.key_norm is not None:
            self._normalise(seating.keys, own.key_norm)
        if self._rotary:
            seating.pairs.mul_(turns)
        return own.output.onto(seating.attend(slot), x)

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states (n, width) after the feed-forward part, from those after the attention."""
        own = self.weights
        h = own.feed_norm(x)
        return own.down.onto(own.up.times(h, own.gate.gate(h)), x)

    def _normalise(self, heads: torch.Tensor, weight: torch.Tensor) -> None:
        heads.copy_(functional.rms_norm(heads, self._head, weight.to(torch.float32), self._eps))
