"""How a model stands on the network, in a sentence: Robust, Fragile, Incomplete, or not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.standing import ranges_text, weakness_text
from diffuse_tui.presenter.figures import counted
from diffuse_tui.presenter.spans import Line, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import ModelView, NetworkView, NodeView
    from diffuse_tui.presenter.spans import Tone


class Standing(NamedTuple):
    """A state as shape, word and the rest of the sentence; `tone` repeats it in colour."""

    glyph: str
    word: str
    detail: str
    tone: Tone

    @property
    def sentence(self) -> str:
        """The whole sentence without the glyph."""
        return f"{self.word}: {self.detail}"


def standing(model: ModelView, nodes: Sequence[NodeView]) -> Standing:
    """How `model` stands; `nodes` tell whether somebody is already filling a gap."""
    if model.state == "Robust":
        enough = f"every layer has {model.target_replicas} or more holders"
        return Standing("●", "Robust", enough, "good")
    if model.state == "Fragile":
        return Standing(
            "◐", "Fragile", weakness_text(model.replicas, model.target_replicas), "warning"
        )
    hole = f"{ranges_text(model.missing)} of {model.layers} are held by no live node"
    return Standing("○", "Incomplete", hole + _coming(model, nodes), "bad")


def _coming(model: ModelView, nodes: Sequence[NodeView]) -> str:
    filling = sum(
        1
        for node in nodes
        if node.state in ("claiming", "loading")
        and holds(node, model)
        and any(node.slice and node.slice.overlaps(gap) for gap in model.missing)
    )
    if not filling:
        return ""
    return "; one host is loading" if filling == 1 else f"; {filling} hosts are loading"


def holds(node: NodeView, model: ModelView) -> bool:
    """Whether `node` is a live Host of exactly this model (name and fingerprint)."""
    return (
        node.slice is not None
        and node.liveness != "dead"
        and node.model == model.id
        and node.fingerprint == model.fingerprint
    )


def alone(view: NetworkView) -> bool:
    """Whether the node that is looking sees no other node that lives."""
    return all(node.me or node.liveness == "dead" for node in view.nodes)


def absence(wanted: str | None, view: NetworkView | None = None) -> Standing:
    """What to say when there is no model to show, in `view` when there is one."""
    if view is not None and alone(view):
        return Standing("◌", "Alone", "no other node reached yet; see Events", "warning")
    if wanted:
        name = clean_line(wanted, 60)
        return Standing("○", "Waiting", f"no host on this network holds {name} yet", "bad")
    return Standing(
        "○", "No model", "no host on this network holds one; start one with `diffuse host`", "bad"
    )


def refusal(model: ModelView | None, view: NetworkView, wanted: str | None) -> str | None:
    """Why no question can be asked now, naming the missing ranges; None when one can."""
    if model is not None and model.servable:
        return None
    state = absence(wanted, view) if model is None else standing(model, view.nodes)
    if model is not None and model.state != "Incomplete":
        return "its hosts are still loading; nothing to do but wait a moment"
    return state.detail


def choose(view: NetworkView, wanted: str | None, chosen: str | None) -> ModelView | None:
    """The model to show: the one chosen by hand, the one asked for, else the best to talk to.

    Args:
        view: The network.
        wanted: Name or fingerprint given on the command line; nothing else will do.
        chosen: Fingerprint picked in the app; wins while such a model is there.
    """
    for model in view.models:
        if chosen is not None and model.fingerprint == chosen:
            return model
    if wanted is not None:
        named = [m for m in view.models if wanted in (m.id, m.fingerprint)]
        return _best(named)
    return _best(view.models)


def _best(models: Sequence[ModelView]) -> ModelView | None:
    return max(models, key=lambda m: (m.servable, m.hosts, m.fingerprint), default=None)


def model_lines(model: ModelView, nodes: Sequence[NodeView]) -> tuple[Line, ...]:
    """A model in the picker: its name and figures, and how it stands."""
    state = standing(model, nodes)
    facts = (
        f"  {counted(model.layers, 'layer')} · {model.contract} · {counted(model.hosts, 'host')}"
    )
    return (
        (Span(clean_line(model.id, 60), "accent"), Span(facts, "dim")),
        (Span(f"{state.glyph} {state.word}: ", state.tone), Span(state.detail)),
    )
