"""Tensors that an architecture does not know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.skeleton import Plan
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import WeightSource


def refuse_strangers(source: WeightSource, plan: Plan, whole: Any, part: Slice) -> None:
    """Refuse a model with a tensor that would change the text if it were left out.

    `whole` is the module of all layers.

    Raises:
        ModelUnusable: a layer of `part`, or what is outside the layers, has a tensor that the
            architecture does not read.
    """
    known = whole.state_dict().keys()
    # Left over from old versions, and known to the library to be of no use.
    idle = [re.compile(text) for text in whole._keys_to_ignore_on_load_unexpected or ()]
    for name in sorted(source.names - known):
        layer = plan.layer_of(name)
        if layer is not None and not part.start <= layer < part.end:
            continue
        if not any(pattern.search(name) for pattern in idle):
            raise ModelUnusable(
                f"the model has a tensor {name} that its architecture does not know; "
                "it is not supported"
            )
