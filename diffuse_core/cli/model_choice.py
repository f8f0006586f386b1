"""Which model is asked: the one named, else the only one that can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.errors import ModelIncomplete, ModelUnknown, UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.view import NetworkView

_NAMED = 8
"""Models in one message."""


def name_on_network(model: str) -> str:
    """A path stands for the name that its hosts advertise."""
    if not Path(model).exists():
        return model
    from diffuse_core.wiring import model_store

    try:
        return model_store().open(model, lambda _fraction: None).id
    except ModelUnknown:
        return model


def only_model(view: NetworkView) -> str:
    """The name of the only servable model of a network.

    Raises:
        UsageError: there are several; the message names them.
        ModelIncomplete: there are models, but none can be served now.
        ModelUnknown: nobody holds any.
    """
    from diffuse_core.domain.standing import lack_text

    servable = [model for model in view.models if model.servable]
    if len(servable) == 1:
        (model,) = servable
        same = sum(other.id == model.id for other in view.models) == 1
        return model.id if same else f"{model.id}@{model.fingerprint[:12]}"
    if servable:
        several = len({model.id for model in servable}) == len(servable)
        names = [m.id if several else f"{m.id}@{m.fingerprint[:12]}" for m in servable]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise UsageError(
            f"which model? There are {', '.join(sorted(names)[:_NAMED])}{more}: give --model NAME"
        )
    if view.models:
        lacking = "; ".join(f"{model.id}: {lack_text(model)}" for model in view.models[:_NAMED])
        raise ModelIncomplete(
            f"no model can be served now ({lacking}). Add a host with `diffuse host --model ...`, "
            "or wait for one to get ready"
        )
    raise ModelUnknown("no host holds any model yet; start one with `diffuse host --model ...`")
