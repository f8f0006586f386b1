"""Text files that are attached, and exports that are written."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest

from diffuse_core.errors import UsageError
from diffuse_core.text_files import read_bytes, read_text_file, write_export
from diffuse_tui.archive.export import export_dialogue, read_export
from diffuse_tui.archive.store import Archive
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn

LIMIT = 100


def test_text_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "notes one.txt"
    file.write_bytes("\ufeffLine é\r\nnext 🙂".encode())
    for typed in (str(file), f' "{file}" ', f"'{file}'", "~/notes one.txt", "notes one.txt"):
        assert read_text_file(typed, LIMIT) == ("notes one.txt", "Line é\nnext 🙂", "")
    file.write_text("wide", encoding="utf-16")
    assert read_text_file(str(file), LIMIT).text == "wide"
    file.write_text("")
    assert read_text_file(str(file), LIMIT).text == ""
    file.write_text("🙂" * LIMIT)
    assert len(read_text_file(str(file), LIMIT).text) == LIMIT


def test_text_that_is_not_all_utf8_is_read_and_told(tmp_path: Path) -> None:
    file = tmp_path / "old.txt"
    file.write_bytes(b"caf\xe9 is French and so is a long sentence")
    name, text, note = read_text_file(str(file), LIMIT)
    assert (name, text[:4]) == ("old.txt", "caf\ufffd")
    assert note == "old.txt is not all UTF-8: 1 characters were replaced"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"x" * 101, "has 101 characters: at most 100"),
        (b"x" * 401, "too large: at most 100 characters"),
        (b"\x7fELF\0\0\0", "is no text"),
        (bytes(range(128, 256)) * 3, "is no text in UTF-8"),
        (b"\xff\xfe\x00\xd8", "is no text in UTF-8"),
    ],
)
def test_what_is_no_text_or_too_long_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(UsageError, match=why):
        read_text_file(str(tmp_path / "f"), LIMIT)


@pytest.mark.skipif(sys.platform == "win32", reason="no such files there")
def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, why in (
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "no regular file"),
        (tmp_path / "s", "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (tmp_path / "none", "No such file.*check the path"),
        (tmp_path / "loop", "check the path"),
        (tmp_path / "pipe" / "x", "check the path"),
        (tmp_path / ("x" * 300), "check the path"),
    ):
        with pytest.raises(UsageError, match=why):
            read_text_file(str(path), LIMIT)
    listener.close()
    for typed in ("", "  ", "a\0b", "~nobody-of-that-name/x"):
        with pytest.raises(UsageError):
            read_text_file(typed, LIMIT)
    (tmp_path / "four").write_bytes(b"1234")
    with pytest.raises(UsageError, match="at most 3 bytes"):
        read_bytes(str(tmp_path / "four"), 3)


def test_an_export_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    first = write_export("", "heaps", ".md", "one")
    assert first == tmp_path / "heaps.md"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert write_export(str(tmp_path), "heaps", ".md", "two").name == "heaps-2.md"
    assert write_export("heaps.md", "other", ".md", "three").name == "heaps-3.md"
    assert write_export("named", "other", ".json", "\ud800").name == "named.json"
    assert write_export("sub/", "heaps", ".md", "x") == tmp_path / "sub" / "heaps.md"
    (tmp_path / "dangling.md").symlink_to(tmp_path / "elsewhere")
    assert write_export("dangling.md", "x", ".md", "x").name == "dangling-2.md"
    assert not (tmp_path / "elsewhere").exists()
    assert first.read_text() == "one"


def test_an_export_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed in ("no/such/place.md", "none/", "x" * 300):
        with pytest.raises(UsageError, match="type another path"):
            write_export(typed, "heaps", ".md", "text")
    assert list(tmp_path.iterdir()) == []
    if Path("/dev/full").exists():
        real = os.open

        def full(path: object, *given: object) -> int:
            made = real(path, *given)
            os.dup2(real("/dev/full", os.O_WRONLY), made)
            return made

        monkeypatch.setattr("diffuse_core.text_files.os.open", full)
        with pytest.raises(UsageError, match="No space"):
            write_export("", "heaps", ".md", "text")
        assert list(tmp_path.iterdir()) == []


def test_too_many_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_core.text_files.MAX_SAME_NAME", 3)
    for _ in range(2):
        write_export(str(tmp_path), "a", ".md", "")
    with pytest.raises(UsageError, match="type another"):
        write_export(str(tmp_path), "a", ".md", "")


async def test_a_conversation_goes_out_and_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive()
    turns = (KeptTurn(number=0, question="q", answer="a", state="done"),)
    kept = Dialogue(id=0, title="Heaps", turns=turns, changed_at=5.0)
    assert (await export_dialogue(kept, str(tmp_path))).name == "heaps.md"
    path = await export_dialogue(kept, str(tmp_path / "x.json"))
    assert (await export_dialogue(kept, str(tmp_path), ".json")).name == "heaps.json"
    again = archive.load(archive.add(await read_export(str(path))))
    assert (again.title, again.turns) == ("Heaps", turns)
    archive.close()
    # A disk that takes its time keeps nothing else waiting, and not for ever.
    goes_on = threading.Event()
    monkeypatch.setattr("diffuse_tui.archive.export.DISK_S", 0.01)
    monkeypatch.setattr("diffuse_tui.archive.export.read_bytes", lambda *_: goes_on.wait(5))
    with pytest.raises(UsageError, match="took more than"):
        await read_export(str(path))
    goes_on.set()
