"""How a model stands on the network, in a sentence: Robust, Fragile, Incomplete, or not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.plain_text import clean_line, shorten
from diffuse_core.domain.selection import models_named
from diffuse_core.domain.standing import coming_text, lack_text, least_text, remedy_text
from diffuse_tui.presenter.answerer import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import CoverageState, ModelView, NetworkView, NodeView
    from diffuse_tui.presenter.spans import Tone


class Standing(NamedTuple):
    """A state as shape, word and the rest of the sentence; `tone` repeats it in colour.

    `shorter` are other ways to say the rest, the fullest first, for where there is less room.
    """

    glyph: str
    word: str
    detail: str
    tone: Tone
    shorter: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The whole sentence without the glyph."""
        return f"{self.word}: {self.detail}"

    def fitted(self, width: int) -> str:
        """The detail in at most `width` cells: whole clauses, the most important ones first."""
        ways = (self.detail, *self.shorter)
        return next((way for way in ways if len(way) <= width), shorten(ways[-1], width))


_LOOK: dict[CoverageState, tuple[str, Tone]] = {
    "Robust": ("●", "good"),
    "Fragile": ("◐", "warning"),
    "Incomplete": ("○", "bad"),
}


def state_mark(state: CoverageState) -> tuple[str, Tone]:
    """The shape and the tone of a state."""
    return _LOOK[state]


def standing(model: ModelView) -> Standing:
    """How `model` stands, what is on its way, and what would mend it."""
    lack, soon, mend = lack_text(model), coming_text(model.coming), remedy_text(model)
    glyph, tone = state_mark(model.state)
    if model.state == "Robust":
        soon = ""  # Nothing waits for it.
    return Standing(
        glyph, model.state, _joined(lack, soon, mend), tone, _shorter(model, lack, soon, mend)
    )


def _shorter(model: ModelView, lack: str, soon: str, mend: str) -> tuple[str, ...]:
    """Of a gap it matters most that it is being filled, of a weak range what would mend it."""
    brief = lack.removeprefix("layers ").replace(" are held by no live node", " held by nobody")
    ways = [_joined(lack, soon or mend), _joined(brief, soon or mend)]
    if model.state == "Fragile" and model.remedy is not None:
        state = "Robust" if model.remedy.state == "Robust" else "stronger"
        host = f"+{least_text(model.remedy.bytes)} host: {state}"
        ways = [_joined(lack, mend), _joined(brief, mend), _joined(lack, host)]
        ways.append(_joined(brief, host))
    return (*ways, lack, brief)


def _joined(*clauses: str) -> str:
    return "; ".join(filter(None, clauses))


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
        ways = "no other node yet: see Events, give --bootstrap, or F7: host one here"
        brief = ("no other node reached yet; see Events",)
        return Standing("◌", "Alone", ways, "warning", brief)
    if wanted:
        name = clean_line(wanted, 60)
        return Standing("○", "Waiting", f"no host on this network holds {name} yet", "bad")
    return Standing("○", "No model", "no host on this network holds one; F7: host one here", "bad")


def refusal(model: ModelView | None, view: NetworkView, wanted: str | None) -> str | None:
    """Why no question can be asked now, naming the missing ranges; None when one can."""
    if model is not None and model.servable:
        return None
    state = absence(wanted, view) if model is None else standing(model)
    if model is not None and model.state != "Incomplete":
        return "its hosts are still loading; nothing to do but wait a moment"
    return state.detail


def choose(view: NetworkView, wanted: str | None, chosen: str | None) -> ModelView | None:
    """The model to show: the one chosen by hand, the one asked for, else the best to talk to.

    Args:
        view: The network.
        wanted: Given on the command line: a fingerprint, or a name as commands take it (an id,
            `demo`, `id@fingerprint`); nothing else will do.
        chosen: `id@fingerprint` picked in the app; wins while such a model is there.
    """
    for model in view.models:
        if name_of(model) == chosen:
            return model
    if wanted is not None:
        named = models_named(view.models, wanted)
        return _best(named or [m for m in view.models if m.fingerprint == wanted])
    return _best(view.models)


def _best(models: Sequence[ModelView]) -> ModelView | None:
    return max(models, key=lambda m: (m.servable, m.hosts, m.fingerprint), default=None)
