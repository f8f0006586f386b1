"""A conversation as JSON, to be kept, worked on by programs, and read back."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from diffuse_core.errors import UsageError
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.parameters import Params, out_of_bounds

FORMAT = "diffuse.conversation"
VERSION = 1
MAX_BYTES = 64 * 2**20
"""Of a file that is read back."""

_HIDDEN = re.compile("[\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
"""What could steer a terminal or hide text: written as escapes, which read back as the same."""

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Time = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]
Name = Annotated[str, msgspec.Meta(max_length=300)]


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    question: Text
    answer: Text = ""
    state: Literal["streaming", "done", "stopped", "failed", "cut"] = "done"
    model: Name = ""
    note: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    at: Time = 0.0


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of conversation holds; fields that are not known are passed over."""

    format: str
    version: Annotated[int, msgspec.Meta(ge=1)]
    title: Name = ""
    model: Name = ""
    system: Text = ""
    parameters: Params = Params()
    created: Time = 0.0
    changed: Time = 0.0
    turns: Annotated[tuple[_Turn, ...], msgspec.Meta(max_length=5000)] = ()


def to_json(dialogue: Dialogue) -> str:
    """The conversation as JSON that `from_json` reads; times are Unix time in seconds.

    An object with `format` ("diffuse.conversation"), `version` (1), `title`, `model`
    (`id@fingerprint`), `system`, `parameters` (as the app names them), `created`, `changed`, and
    `turns`: `question`, `answer`, `state` (done, stopped, failed or cut), `model`, `note`, `at`.
    """
    file = _File(
        format=FORMAT,
        version=VERSION,
        title=dialogue.title,
        model=dialogue.model,
        system=dialogue.system,
        parameters=dialogue.params,
        created=dialogue.created_at,
        changed=dialogue.changed_at,
        turns=tuple(
            _Turn(
                question=turn.question,
                answer=turn.answer,
                state=turn.state,
                model=turn.model,
                note=turn.note,
                at=turn.at,
            )
            for turn in dialogue.turns
        ),
    )
    text = msgspec.json.format(msgspec.json.encode(file), indent=2).decode()
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def from_json(data: bytes) -> Dialogue:
    """A conversation that `to_json` wrote, without an id; an answer left open is `cut`.

    Raises:
        UsageError: it is none, of a newer version, or beyond all bounds.
    """
    if len(data) > MAX_BYTES:
        raise UsageError("the file is too large to be a conversation")
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is no conversation of Diffuse ({error})") from error
    if file.format != FORMAT:
        raise UsageError("this is no conversation of Diffuse; export one as JSON to see the form")
    if file.version > VERSION:
        raise UsageError("the file is of a newer version of Diffuse; update this one")
    if why := out_of_bounds(file.parameters):
        raise UsageError(f"the file's parameters are out of bounds ({why})")
    return Dialogue(
        id=0,
        title=file.title,
        model=file.model,
        system=file.system,
        params=file.parameters,
        created_at=file.created,
        changed_at=file.changed,
        turns=tuple(
            KeptTurn(
                number=number,
                question=turn.question,
                answer=turn.answer,
                state="cut" if turn.state == "streaming" else turn.state,
                model=turn.model,
                note=turn.note,
                at=turn.at,
            )
            for number, turn in enumerate(file.turns)
        ),
    )
