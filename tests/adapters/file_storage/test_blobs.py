from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage, blobs
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_blobs_are_private_and_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "state"
    storage = FileStorage(directory)
    assert storage.read("blob") is None
    storage.delete("blob")
    storage.write("blob", b"one")
    storage.write("blob", b"")
    storage.write("blob", b"\x00two")
    assert storage.read("blob") == b"\x00two"
    assert mode(directory) == 0o700
    assert mode(directory / "blob") == 0o600
    assert os.listdir(directory) == ["blob"]  # noqa: PTH208 - names are what is compared
    storage.delete("blob")
    assert storage.read("blob") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "c:d", "a\x00", "a\n", "n" * 129]
)
def test_only_plain_names(tmp_path: Path, name: str) -> None:
    storage = FileStorage(tmp_path)
    for use in (storage.read, storage.delete, lambda n: storage.write(n, b"")):
        with pytest.raises(ValueError, match="no plain file name"):
            use(name)


def test_a_failed_write_keeps_the_old_blob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    storage.write("blob", b"old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(UsageError, match="no space left on device; free some space"):
        storage.write("blob", b"new")
    monkeypatch.undo()
    assert storage.read("blob") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]


def test_a_directory_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    storage = FileStorage(tmp_path)
    for use in (storage.read, storage.delete, lambda n: storage.write(n, b"")):
        with pytest.raises(UsageError, match="cannot use"):
            use("blob")
    assert [path.name for path in tmp_path.iterdir()] == ["blob"]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot use"):
        FileStorage(tmp_path / "file").write("blob", b"")


def test_oversized_blobs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BLOB_BYTES", 10)
    (tmp_path / "blob").write_bytes(bytes(11))
    with pytest.raises(UsageError, match="larger than"):
        FileStorage(tmp_path).read("blob")
