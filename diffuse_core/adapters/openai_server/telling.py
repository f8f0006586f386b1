"""One choice: what its generation gave so far, in the pieces that are told."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.domain.tool_calls import CallParser, FoundCall
from diffuse_core.domain.view import Finished, Healed, RouteChosen, TextDelta, Waiting

if TYPE_CHECKING:
    from diffuse_core.domain.decoding import TokenLogprobs
    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, RouteStep


@dataclass(frozen=True)
class Entry:
    """A token with its logprobs; `offset` is how many characters of the text come before it."""

    token: int
    logprobs: TokenLogprobs
    offset: int


@dataclass(frozen=True)
class Call:
    """A call that the model asked for; `place` counts those of its choice from 0."""

    place: int
    id: str
    found: FoundCall


@dataclass(frozen=True)
class Piece:
    """What is told at once: text, a call, or neither; and tokens that came with it."""

    text: str = ""
    call: Call | None = None
    entries: tuple[Entry, ...] = ()


@dataclass
class Choice:
    """What there is of one choice. With a `parser`, calls are found in its text.

    With `one_call` those after the first are not told: who asks for no parallel calls may not
    know what to do with them, and the model cannot be held back from writing them.
    """

    index: int
    request: GenerateRequest
    parser: CallParser | None = None
    one_call: bool = False
    pieces: list[Piece] = field(default_factory=list)
    prompt_tokens: int = 0
    finished: Finished | None = None
    route: tuple[RouteStep, ...] = ()
    healed: int = 0
    _told: int = 0
    _held: int = 0
    _calls: int = 0

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def calls(self) -> list[Call]:
        """All of its calls."""
        return [piece.call for piece in self.pieces if piece.call is not None]

    @property
    def entries(self) -> list[Entry]:
        """All of its tokens, where logprobs were asked for."""
        return [entry for piece in self.pieces for entry in piece.entries]

    @property
    def reason(self) -> str:
        """Why it ended, in the API's words."""
        if self.finished is not None and self.finished.finish_reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def note(self, event: GenerateEvent) -> list[Piece]:
        """What an event adds."""
        match event:
            case RouteChosen():
                self.prompt_tokens, self.route = event.prompt_tokens, event.route
            case Healed():
                self.route = event.route
                self.healed += 1
            case TextDelta():
                return self._kept(self._parsed(event.text), self._entries(event))
            case Finished():
                self.finished = event
                self.route = event.route
                rest = [] if self.parser is None else self.parser.flush()
                return self._kept(rest, ())
            case Waiting() | _:
                pass
        return []

    def _parsed(self, text: str) -> list[str | FoundCall]:
        if self.parser is None or not text:
            return [text] if text else []
        return list(self.parser.push(text))

    def _entries(self, delta: TextDelta) -> tuple[Entry, ...]:
        offset, self._held = self._told + self._held, delta.held
        pairs = zip(delta.token_ids, delta.logprobs, strict=False)
        return tuple(Entry(token, logprobs, offset) for token, logprobs in pairs)

    def _kept(self, found: list[str | FoundCall], entries: tuple[Entry, ...]) -> list[Piece]:
        pieces: list[Piece] = []
        for each in found:
            if isinstance(each, str):
                pieces.append(Piece(text=each))
                self._told += len(each)
            elif not (self.one_call and self._calls):
                pieces.append(Piece(call=Call(self._calls, new_call_id(), each)))
                self._calls += 1
        if entries:
            first = pieces[0] if pieces else Piece()
            pieces[:1] = [Piece(first.text, first.call, entries)]
        self.pieces += pieces
        return pieces


def new_call_id() -> str:
    """The id of a call, by which the message with its result names it."""
    return f"call_{secrets.token_hex(12)}"


def new_choices(
    requests: list[GenerateRequest], calls: ToolFormat | None, *, one_call: bool = False
) -> list[Choice]:
    """The choices of a request; with `calls`, in what form a model writes calls."""
    return [
        Choice(index, request, None if calls is None else CallParser(calls), one_call)
        for index, request in enumerate(requests)
    ]
