"""Which models the lean engine computes, and what it must know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Architectures whose layer is: norm, rotary attention, norm, gated feed-forward."""


@dataclass(frozen=True)
class Family:
    """A llama-like model's measures. Widths are in numbers, windows in positions."""

    kind: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    windows: tuple[int | None, ...]
    """For each layer, how many positions it looks back, itself included; None is all."""
    rotary: tuple[bool, ...]
    """For each layer, whether queries and keys are turned by their position."""


def family_of(config: Any) -> Family | None:
    """The family of a whole model's `transformers` configuration; None when it is another.

    Everything that a layer of the kind may do and the lean engine does not is asked for here.
    """
    if config.model_type not in KINDS or config.hidden_act != "silu":
        return None
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if head_dim % 2 or heads % config.num_key_value_heads:
        return None
    settings: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    if settings.get("partial_rotary_factor", 1.0) != 1.0:
        return None
    return Family(
        kind=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        vocab=config.vocab_size,
        heads=heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        eps=config.rms_norm_eps,
        windows=_windows(config),
        rotary=_rotary(config),
    )


def _windows(config: Any) -> tuple[int | None, ...]:
    """As the library's masks have it: a layer's kind decides where there are kinds."""
    count: int = config.num_hidden_layers
    window: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    return (window if config.model_type == "mistral" else None,) * count


def _rotary(config: Any) -> tuple[bool, ...]:
    marks = getattr(config, "no_rope_layers", None)
    if marks is None:
        count: int = config.num_hidden_layers
        return (True,) * count
    # The library's list has a 1 where rotary positions are used, in spite of its name.
    return tuple(bool(mark) for mark in marks)
