"""A conversation as JSON, as the app and `diffuse chat` write it and read it back.

An object with `format` ("diffuse.conversation"), `version` (1), `title`, `model` (a name, or
`id@fingerprint`), `system`, `parameters` (as whoever wrote it names them), `created`, `changed`,
and `turns`: `question`, `answer`, `state` (done, stopped, failed or cut), `model`, `note`, `at`.
Times are Unix time in seconds. Fields that are not known are passed over.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import UsageError

FORMAT = "diffuse.conversation"
VERSION = 1
MAX_BYTES = 64 * 2**20
"""Of a file that is read back."""
MAX_TURNS = 5000

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Name = Annotated[str, msgspec.Meta(max_length=300)]
Time = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]


class SavedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and what came of it."""

    question: Text
    answer: Text = ""
    state: Literal["streaming", "done", "stopped", "failed", "cut"] = "done"
    model: Name = ""
    note: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    at: Time = 0.0


class SavedChat(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds, but for the parameters, which its readers check as their own."""

    format: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    title: Name = ""
    model: Name = ""
    system: Text = ""
    created: Time = 0.0
    changed: Time = 0.0
    turns: Annotated[tuple[SavedTurn, ...], msgspec.Meta(max_length=MAX_TURNS)] = ()


Chat = TypeVar("Chat", bound=SavedChat)


def encode_chat(chat: SavedChat) -> str:
    """The file's text, with an escape for each character that could steer a terminal."""
    text = msgspec.json.format(msgspec.json.encode(chat), indent=2).decode()
    for each in (c for c in set(text) - {"\n"} if clean(c) != c):
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text + "\n"


def decode_chat(data: bytes, kind: type[Chat]) -> Chat:
    """What `encode_chat` wrote.

    Raises:
        UsageError: it is no conversation, of a newer version, or beyond all bounds.
    """
    if len(data) > MAX_BYTES:
        raise UsageError("the file is too large to be a conversation")
    try:
        chat = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no conversation of Diffuse ({error})") from error
    if chat.format != FORMAT:
        raise UsageError("this is no conversation of Diffuse; save one as JSON to see the form")
    if chat.version > VERSION:
        raise UsageError("the file is of a newer version of Diffuse; update this one")
    return chat
