"""A conversation as JSON, to be kept, worked on by programs, and read back."""

from __future__ import annotations

from diffuse_core.domain.saved_chat import (
    FORMAT,
    VERSION,
    SavedChat,
    SavedTurn,
    decode_chat,
    encode_chat,
)
from diffuse_core.errors import UsageError
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.parameters import Params, out_of_bounds


class _File(SavedChat, frozen=True, kw_only=True):
    """What a file of conversation holds, with the app's parameters."""

    parameters: Params = Params()


def to_json(dialogue: Dialogue) -> str:
    """The conversation as JSON that `from_json` reads, in the form of domain.saved_chat."""
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
            SavedTurn(
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
    return encode_chat(file)


def from_json(data: bytes) -> Dialogue:
    """A conversation that `to_json` wrote, without an id; an answer left open is `cut`.

    Raises:
        UsageError: it is none, of a newer version, or beyond all bounds.
    """
    file = decode_chat(data, _File)
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
