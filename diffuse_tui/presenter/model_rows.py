"""The models of a network as rows of the picker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.columns import Column
from diffuse_tui.presenter.spans import Line, Span
from diffuse_tui.presenter.standing import standing, state_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.columns import Sort

COLUMNS = (
    Column("model", 16, grows=True),
    Column("state", 12),
    Column("answers", 7, 3),
    Column("least", 5, 4, right=True),
    Column("hosts", 5, 1, right=True, falls=True),
    Column("layers", 6, 5, right=True, falls=True),
    Column("dtype", 5, 2),
)
MOST_WORDS = 16

_STATES = ("Robust", "Fragile", "Incomplete")
_SORTS: dict[str, Callable[[ModelView], object]] = {
    "model": lambda model: model.id.lower(),
    "state": lambda model: _STATES.index(model.state),
    "answers": lambda model: not model.servable,
    "least": lambda model: model.min_replicas,
    "hosts": lambda model: model.hosts,
    "layers": lambda model: model.layers,
    "dtype": lambda model: model.contract,
}


def listed(
    models: Sequence[ModelView], words: str = "", sort: Sort | None = None
) -> dict[str, ModelView]:
    """The models to show by `id@fingerprint`: those that all words match, in the order asked for.

    A word matches a part of the name, of the state or of the dtype, the beginning of the
    fingerprint, or `answers`; `!word` those that the word does not match.
    """
    wanted = words.lower().split()[:MOST_WORDS]
    found = [model for model in models if all(_matches(model, word) for word in wanted)]
    if sort is not None and sort.column in _SORTS:
        found.sort(key=_SORTS[sort.column], reverse=sort.falling)  # type: ignore[arg-type]
    first: dict[str, ModelView] = {}
    for model in found:
        first.setdefault(name_of(model), model)
    return first


def _matches(model: ModelView, word: str) -> bool:
    if len(word) > 1 and word.startswith("!"):
        return not _matches(model, word[1:])
    answers = "answers" if model.servable else ""
    told = f"{model.id} {model.state} {model.contract} {answers}".lower()
    return word in told or model.fingerprint.startswith(word)


def model_cells(model: ModelView, *, current: bool) -> tuple[Span, ...]:
    """A model's cells; `current` is whether it is the one that is shown now."""
    glyph, tone = state_mark(model.state)
    weak = model.min_replicas < model.target_replicas
    return (
        Span(f"{'▶ ' if current else '  '}{clean_line(model.id, 120)}", "accent"),
        Span(f"{glyph} {model.state}", tone),
        Span("yes" if model.servable else "not now", "plain" if model.servable else "dim"),
        Span(f"x{model.min_replicas}", "warning" if weak else "plain"),
        Span(str(model.hosts)),
        Span(str(model.layers)),
        Span(model.contract),
    )


def model_sentence(model: ModelView, width: int) -> tuple[Line, ...]:
    """How the model under the cursor stands, and which revision of it that is."""
    state = standing(model)
    head = f"{state.glyph} {state.word}: "
    told = state.fitted(max(8, width - len(head)))
    known = f"{model.fingerprint[:12]} · context of {model.context} tokens"
    return (
        (Span(head, state.tone), Span(told)),
        (Span(clean_line(known, max(8, width)), "dim"),),
    )
