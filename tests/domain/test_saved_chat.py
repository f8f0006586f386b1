"""Conversations as files."""

from __future__ import annotations

import pytest

from diffuse_core.domain import saved_chat
from diffuse_core.domain.saved_chat import (
    FORMAT,
    VERSION,
    SavedChat,
    SavedTurn,
    decode_chat,
    encode_chat,
)
from diffuse_core.errors import UsageError

CHAT = SavedChat(
    format=FORMAT,
    version=VERSION,
    title="T",
    model="m@0f",
    system="s",
    created=1.5,
    changed=2.5,
    turns=(SavedTurn(question="q", answer="\x1b[2J\u202eä\u2028\x9b🙂\t\n", state="cut", at=1.5),),
)


def test_what_is_written_is_read_back_and_steers_no_terminal() -> None:
    text = encode_chat(CHAT)
    assert decode_chat(text.encode(), SavedChat) == CHAT
    assert not {"\x1b", "\u202e", "\u2028", "\x9b", "\t"} & set(text)
    assert "ä" in text
    assert "🙂" in text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no conversation"),
        (b"\xff", "no conversation"),
        (b"[" * 100_000, "no conversation"),
        (b"{}", "no conversation"),
        (b'{"format": "other", "version": 1}', "see the form"),
        (b'{"format": "diffuse.conversation", "version": 2}', "newer version"),
        (b'{"turns": [{"answer": "a"}]}', "no conversation"),
    ],
)
def test_what_is_none_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        decode_chat(data, SavedChat)


def test_what_is_too_large_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_chat, "MAX_BYTES", 10)
    with pytest.raises(UsageError, match="too large"):
        decode_chat(b" " * 11, SavedChat)
