"""Models as the API lists them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.selection import find_model, require_servable

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView, NetworkView
    from diffuse_core.ports import Answers


async def servable_model(answers: Answers, name: str) -> ModelView:
    """The model that a name means.

    Raises:
        ModelUnknown: nobody on the network holds such a model.
        ModelIncomplete: naming the ranges that nobody holds.
        Unreachable: no node answers.
    """
    return require_servable(find_model(await answers.view(), name))


def listed(view: NetworkView, created: int) -> dict[str, Any]:
    """The servable models, each under an id that a request may name as its model.

    Where several have one name, that name means the one with the most hosts, and each of them is
    listed under `id@fingerprint` as well.
    """
    servable = [model for model in view.models if model.servable]
    found: dict[str, ModelView] = {}
    several = Counter(model.id.casefold() for model in servable)
    for model in servable:
        found[model.id] = find_model(view, model.id)
        if several[model.id.casefold()] > 1:
            found[f"{model.id}@{model.fingerprint}"] = model
    data = [told(name, model, created) for name, model in sorted(found.items())]
    return {"object": "list", "data": data}


def told(name: str, model: ModelView, created: int) -> dict[str, Any]:
    """A model object; after `owned_by` there are fields of our own."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "diffuse",
        "context_length": model.context,
        "max_model_len": model.context,
        "layers": model.layers,
        "contract": model.contract,
        "fingerprint": model.fingerprint,
        "min_replicas": model.min_replicas,
    }
