"""Calls of tools in an answer's text, found while it arrives.

What may become a call is held back until it is one, or cannot be one any more: then it comes out
as the text that it is. No character is lost or told twice, except that whitespace next to a call
is dropped, with what marks it. How the text is cut into pieces makes no difference.
"""

from __future__ import annotations

from itertools import groupby

import msgspec

from diffuse_core.domain.json_end import JsonEnd
from diffuse_core.domain.tool_formats import GRAMMARS
from diffuse_core.domain.tools import (
    MAX_CALL_CHARS,
    MAX_DEPTH,
    MAX_TOOL_CALLS,
    JsonText,
    ToolFormat,
    ToolName,
    too_deep,
)

MAX_SPACE = 64
"""Characters of whitespace next to a call that are dropped."""
MAX_HEAD = 512
"""Characters between what opens a call and its JSON."""
_SPACE = " \t\r\n"
_STRIDE = 4096


_NOTHING = msgspec.Raw()


class FoundCall(msgspec.Struct, frozen=True):
    """A call: `arguments` are a JSON object, as the model wrote it."""

    name: str
    arguments: str


class _Written(msgspec.Struct):
    """What a model writes; Llama says parameters."""

    name: ToolName
    arguments: msgspec.Raw = _NOTHING
    parameters: msgspec.Raw = _NOTHING


Piece = str | FoundCall
_one = msgspec.json.Decoder(_Written)
_several = msgspec.json.Decoder(list[_Written])
_text = msgspec.json.Decoder(JsonText)
_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)


class CallParser:
    """Takes an answer's text piece by piece; gives text and calls in their order."""

    def __init__(self, form: ToolFormat) -> None:
        self._grammar = GRAMMARS[form]
        self._held = ""
        self._lead = ""
        """Whitespace and opener of what may become a call; dropped when it does."""
        self._name: str | None = None
        self._end: JsonEnd | None = None
        self._opened = False
        self._fresh = True
        """Nothing but whitespace came since the beginning, or since a call."""
        self._closes = False
        """What closes a call may come."""
        self._calls = 0
        self._out: list[Piece] = []

    def push(self, delta: str) -> list[Piece]:
        """What became certain with this piece of text, in order."""
        # What is held is copied at each step: of a long text little is held at a time.
        for at in range(0, len(delta), _STRIDE):
            self._held += delta[at : at + _STRIDE]
            while self._held and self._step():
                pass
        return self._told()

    def flush(self) -> list[Piece]:
        """What was still held back, at the end of the answer."""
        rest = self._lead + self._held
        if rest.strip(_SPACE) or not (self._calls and self._fresh):
            self._tell(rest)
        self._lead = self._held = ""
        return self._told()

    def _told(self) -> list[Piece]:
        """What is to be told, texts that follow each other as one."""
        told: list[Piece] = []
        for is_text, group in groupby(self._out, key=lambda piece: isinstance(piece, str)):
            pieces = list(group)
            told += ["".join(map(str, pieces))] if is_text else pieces
        self._out = []
        return told

    def _tell(self, text: str) -> None:
        if text:
            self._out.append(text)
        self._fresh = self._fresh and not text.strip(_SPACE)

    def _step(self) -> bool:
        """Get on by one part of the text; False when more must arrive first."""
        if self._end is not None:
            return self._read_json(self._end)
        if self._opened:
            return self._read_head()
        return self._read_closer() if self._closes else self._read_text()

    def _read_closer(self) -> bool:
        """What closes the last call, if anything does: dropped."""
        closer, rest = self._grammar.closer, self._held.lstrip(_SPACE)
        near = len(self._held) - len(rest) <= MAX_SPACE
        if near and len(rest) < len(closer) and closer.startswith(rest):
            return False
        if near and rest.startswith(closer):
            self._held = rest[len(closer) :] if closer else self._held
        self._closes = False
        return True

    def _read_text(self) -> bool:
        held, opener = self._held, self._grammar.opener
        if self._calls >= MAX_TOOL_CALLS:
            self._release(len(held))
            return False
        rest = held.lstrip(_SPACE)
        if self._grammar.bare and self._fresh and rest[:1] == "{":
            self._open(len(held) - len(rest), "")
            return True
        at = held.find(opener)
        if at >= 0:
            self._open(at, opener)
            return True
        begun = next(n for n in range(len(opener), -1, -1) if held.endswith(opener[:n]))
        self._release(_before_space(held, len(held) - begun))
        return False

    def _release(self, end: int) -> None:
        """What stands before `end` is text."""
        self._tell(self._held[:end])
        self._held = self._held[end:]

    def _open(self, at: int, opener: str) -> None:
        start = _before_space(self._held, at)
        self._release(start)
        end = at - start + len(opener)
        self._lead, self._held = self._held[:end], self._held[end:]
        self._opened = True

    def _read_head(self) -> bool:
        """What stands between what opens a call and its JSON."""
        grammar, head = self._grammar, self._held[: MAX_HEAD + 1]
        found = grammar.head.match(head)
        if found is None or found.end() == len(head):
            return len(head) > MAX_HEAD and self._not_opened()
        if head[found.end()] not in grammar.starts:
            return self._not_opened()
        self._lead += found[0]
        self._held = self._held[found.end() :]
        self._name = found.groupdict().get("name")
        self._end = JsonEnd(MAX_CALL_CHARS, MAX_DEPTH)
        return True

    def _not_opened(self) -> bool:
        """What looked as if it opened a call is text; what follows it may hold one yet."""
        self._tell(self._lead)
        self._lead = ""
        self._opened = False
        return True

    def _read_json(self, end: JsonEnd) -> bool:
        progress = end.read(self._held)
        if progress == "open":
            return False
        written = self._held[: end.at]
        calls = _calls(written, self._name) if progress == "ended" else []
        self._held = self._held[end.at :]
        self._end = None
        self._opened = False
        if calls and self._calls + len(calls) <= MAX_TOOL_CALLS:
            self._out += calls
            self._calls += len(calls)
            self._fresh = self._closes = True
        else:
            self._tell(self._lead + written)
        self._lead = ""
        return True


def _before_space(text: str, end: int) -> int:
    """Where the whitespace before `end` begins, as far as it is dropped next to a call."""
    return max(end - MAX_SPACE, len(text[:end].rstrip(_SPACE)))


def _calls(written: str, name: str | None) -> list[FoundCall]:
    """The calls that some JSON is, of the tool `name` where that stood before it; maybe none."""
    try:
        if name is not None:
            return [_call(name, written)]
        parts = _several.decode(written) if written[0] == "[" else [_one.decode(written)]
        return [
            _call(part.name, bytes(part.arguments or part.parameters).decode()) for part in parts
        ]
    except _ERRORS:
        return []


def _call(name: str, arguments: str) -> FoundCall:
    """Raises ValueError or DecodeError when the arguments are no JSON object."""
    if arguments.startswith('"'):  # Some models write the object into a string.
        arguments = _text.decode(arguments)
    value = msgspec.json.decode(arguments)
    if not isinstance(value, dict) or too_deep(value):
        raise ValueError("arguments are an object")
    return FoundCall(name, arguments)
