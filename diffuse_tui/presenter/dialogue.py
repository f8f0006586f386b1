"""A conversation as it is kept: its settings and turns, whatever shows or stores them."""

from __future__ import annotations

from typing import Literal

import msgspec

from diffuse_tui.presenter.parameters import Params

TurnState = Literal["streaming", "done", "stopped", "failed", "cut"]
"""How an answer stands: `cut` is one that was streaming when the app ended."""


class KeptTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A question and its answer so far. `number` counts from 0 within the conversation.

    `question` is what was sent, attached text included. `note` is what is said below the answer:
    figures and route, or why it failed. `at` is Unix time in seconds.
    """

    number: int
    question: str
    answer: str = ""
    state: TurnState = "streaming"
    model: str = ""
    note: str = ""
    at: float = 0.0


class Dialogue(msgspec.Struct, frozen=True, kw_only=True):
    """A whole conversation. Times are Unix time in seconds; `model` is `id@fingerprint`."""

    id: int
    title: str
    model: str = ""
    system: str = ""
    params: Params = Params()
    created_at: float = 0.0
    changed_at: float = 0.0
    turns: tuple[KeptTurn, ...] = ()


class DialogueHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of conversations shows of one. `snippet` is where a search found its words."""

    id: int
    title: str
    model: str
    changed_at: float
    turns: int
    snippet: str = ""
