"""Files of the state directory: their owner's alone, and nobody else's by a trick."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from diffuse_core.settings import network_options
from diffuse_tui.crash import keep
from diffuse_tui.local_node import HOST_LOG, HOST_PID, LocalNode
from diffuse_tui.private_file import open_private, read_kept
from diffuse_tui.quiet import LOG, quiet
from diffuse_tui.remembered import FILE, Remembered

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, text: str, *, append: bool = False) -> None:
    with os.fdopen(open_private(path, append=append), "w") as file:
        file.write(text)


def test_a_file_is_begun_anew_or_gone_on_with_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "file"
    put(file, "one")
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.chmod(0o644)
    put(file, "two", append=True)
    assert file.read_text() == "onetwo"
    assert file.stat().st_mode & 0o777 == 0o600
    put(file, "three")
    assert file.read_text() == "three"


def test_a_link_is_not_followed_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "link").symlink_to(other)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            open_private(tmp_path / name)
    assert other.read_text() == "kept"


def test_what_the_app_writes_goes_through_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    state = tmp_path / "state"
    state.mkdir()
    for name in (LOG, "crash-now.txt", FILE, f"app.{os.getpid()}"):
        (state / name).symlink_to(other)
    with quiet(state):
        os.write(2, b"noise")
    assert keep(ValueError("x"), state, "now").file is None
    Remembered(state).keep("theme", "light")
    assert other.read_text() == "kept"


def test_a_part_of_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("0123456789")
    assert read_kept(file, 4) == b"0123"
    assert read_kept(file, 4, end=True) == b"6789"
    assert read_kept(file, 40, end=True) == b"0123456789"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "endless", "directory", "loop"])
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(
    tmp_path: Path, kind: str
) -> None:
    for name in (FILE, HOST_PID, HOST_LOG):
        if kind == "pipe":
            os.mkfifo(tmp_path / name)
        elif kind == "directory":
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).symlink_to("/dev/zero" if kind == "endless" else tmp_path / name)
    assert Remembered(tmp_path).text("theme") is None
    local = LocalNode(
        tmp_path, network_options(None, None, None, [], mdns=False), (), may_start=False
    )
    assert not local.earlier(1)
    assert "without a word" in local.host_words()


def test_nothing_half_written_is_left_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("diffuse_tui.remembered.msgspec.json.encode", full)
    Remembered(tmp_path).keep("theme", "light")
    assert list(tmp_path.iterdir()) == []
