"""Which model of the network a name means, and whether it can be served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.domain.coverage import missing_text
from diffuse_core.errors import ModelIncomplete, ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.slices import Slice
    from diffuse_core.domain.view import ModelView, NetworkView, NodeView

DEMO_ALIAS = "demo"
DEMO_MODEL_ID = "smollm2-135m-instruct"
_PIECE = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_HUB_NAME = re.compile(rf"{_PIECE}(?:/{_PIECE})?")
_FILES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json", ".git")
_WORDS = ("auto", DEMO_ALIAS)
"""Words that mean something else where a model is named."""
_MAX_NAMED = 4
"""Of nodes in one sentence."""


def network_id(name: str) -> str:
    """The id that a model's short name stands for on the network."""
    return DEMO_MODEL_ID if name == DEMO_ALIAS else name


def fetch_name(model_id: str) -> str | None:
    """What anybody may get the model of that id under: the hub's name, or the demo's alias.

    None for an id that can only be that of files on its Host's disk, or that would mean
    something else here. Whether there is such a model, and whether it is the same, is for opening
    it to find out.
    """
    if model_id == DEMO_MODEL_ID:
        return DEMO_ALIAS
    low = model_id.lower()
    if low in _WORDS or low.endswith(_FILES) or ".." in model_id or "--" in model_id:
        return None
    return model_id if _HUB_NAME.fullmatch(model_id) is not None else None


def models_named(models: Iterable[ModelView], name: str) -> list[ModelView]:
    """The models that `name` (an id, an alias, or `id@fingerprint-prefix`) may mean."""
    wanted, _, prefix = name.partition("@")
    wanted = network_id(wanted).casefold()
    return [
        model
        for model in models
        if model.id.casefold() == wanted and model.fingerprint.startswith(prefix)
    ]


def find_model(view: NetworkView, name: str) -> ModelView:
    """The model that `name` means; see `models_named`.

    Of several with that id (other weights or contract), a servable one is preferred, then the one
    with more hosts.

    Raises:
        ModelUnknown: nobody on the network holds such a model.
    """
    found = models_named(view.models, name)
    if not found:
        known = ", ".join(sorted({model.id for model in view.models})) or "none yet"
        raise ModelUnknown(
            f"no node holds a model named {name!r}; models on this network: {known}. "
            "Host it with `diffuse host --model ...`"
        )
    return max(found, key=lambda model: (model.servable, model.hosts, model.fingerprint))


def require_servable(model: ModelView) -> ModelView:
    """The model itself when every layer has a live, ready holder.

    Raises:
        ModelIncomplete: naming the ranges that nobody holds.
    """
    if model.missing:
        raise ModelIncomplete(
            f"{model.id} is incomplete: {missing_text(model.layers, model.missing)}. "
            "Add a host with `diffuse host --model ...`, or wait for one to get ready"
        )
    return model


def unreachable(node: NodeView) -> bool:
    """Whether a node lives, but says of no address and no Sentinel that it is met there."""
    return node.liveness != "dead" and not node.addresses and not node.relays


def unreachable_text(nodes: Iterable[NodeView]) -> str | None:
    """Which of the nodes that hold layers nobody can dial, and what to do; None for none."""
    names = [node.short for node in nodes if node.slice is not None and unreachable(node)]
    if not names:
        return None
    holds, them = ("holds", "it") if len(names) == 1 else ("hold", "them")
    return (
        f"{_listed(names)} {holds} layers, but cannot be dialled: no sentinel relays for {them} "
        "now; start one with `diffuse sentinel`, or try again in a moment"
    )


def no_way_text(missing: Sequence[Slice], names: Sequence[str]) -> str:
    """Why layers cannot be had that live nodes hold, the nodes by their short names."""
    parts = ", ".join(map(str, missing))
    return (
        f"layers {parts} are held by {_listed(names)}, which no sentinel relays for now; "
        "start a sentinel or try again in a moment"
    )


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        shown.append(f"{len(names) - _MAX_NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
