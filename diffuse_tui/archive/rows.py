"""Between rows of the archive's file and the values that the app uses. Texts are bounded here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec

from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn, TurnState
from diffuse_tui.presenter.parameters import Params, out_of_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT = 1_000_000
"""Characters of a question, an answer or a system prompt that are kept."""
MAX_NOTE = 20_000
MAX_NAME = 300
"""Characters of a title or a model's name."""

_STATES: frozenset[str] = frozenset(get_args(TurnState))

TURN = "number, question, answer, state, model, note, at"
CONVERSATION = "id, title, model, system, params, created, changed"


def storable(text: str, limit: int) -> str:
    """`text` in at most `limit` characters; half surrogates, which no file takes, replaced."""
    cut = text[:limit]
    try:
        cut.encode()
    except UnicodeEncodeError:
        return cut.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cut


def turn_values(turn: KeptTurn) -> tuple[Any, ...]:
    """The columns of `TURN`, bounded."""
    return (
        turn.number,
        storable(turn.question, MAX_TEXT),
        storable(turn.answer, MAX_TEXT),
        turn.state,
        storable(turn.model, MAX_NAME),
        storable(turn.note, MAX_NOTE),
        turn.at,
    )


def params_text(params: Params) -> str:
    """Parameters as JSON."""
    return msgspec.json.encode(params).decode()


def _params(text: str) -> Params:
    try:
        params = msgspec.json.decode(text.encode(), type=Params)
    except msgspec.DecodeError:
        return Params()  # Of a version that had others: the conversation is worth more.
    return Params() if out_of_bounds(params) else params


def _turn(row: tuple[Any, ...]) -> KeptTurn:
    number, question, answer, state, model, note, at = row
    return KeptTurn(
        number=number,
        question=question,
        answer=answer,
        state=state if state in _STATES else "cut",
        model=model,
        note=note,
        at=at,
    )


def dialogue(row: tuple[Any, ...], turns: Iterable[tuple[Any, ...]]) -> Dialogue:
    """A conversation of a row of `CONVERSATION` and rows of `TURN`."""
    number, title, model, system, params, created, changed = row
    return Dialogue(
        id=number,
        title=title,
        model=model,
        system=system,
        params=_params(params),
        created_at=created,
        changed_at=changed,
        turns=tuple(_turn(row) for row in turns),
    )
