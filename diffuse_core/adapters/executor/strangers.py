"""Tensors that an architecture does not know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import WeightSource


def left_over(whole: Any) -> tuple[str, ...]:
    """Patterns of tensors that old versions of a library's module had, and that are of no use."""
    return tuple(whole._keys_to_ignore_on_load_unexpected or ())


def refuse_strangers(
    source: WeightSource,
    known: Collection[str],
    idle: Iterable[str],
    layer_of: Callable[[str], int | None],
    part: Slice,
) -> None:
    """Refuse a model with a tensor that would change the text if it were left out.

    Args:
        source: the model.
        known: every parameter of the whole model.
        idle: see `left_over`.
        layer_of: the layer that a tensor belongs to.
        part: the layers that are loaded.

    Raises:
        ModelUnusable: a layer of `part`, or what is outside the layers, has a tensor that the
            architecture does not read.
    """
    useless = [re.compile(text) for text in idle]
    for name in sorted(source.names - frozenset(known)):
        layer = layer_of(name)
        if layer is not None and not part.start <= layer < part.end:
            continue
        if not any(pattern.search(name) for pattern in useless):
            raise ModelUnusable(
                f"the model has a tensor {name} that its architecture does not know; "
                "it is not supported"
            )
