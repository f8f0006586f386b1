from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from diffuse_core.adapters import file_storage
from diffuse_core.adapters.file_storage import FileStorage, StateLock, load_identity
from diffuse_core.domain.identity import verify
from diffuse_core.errors import UsageError


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


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices in directories")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_would_be_waited_for_is_refused(tmp_path: Path, kind: str) -> None:
    """Pytest's own time limit ends this test where it waits."""
    for name in ("blob", "identity.key", file_storage.LOCK_NAME):
        path = tmp_path / name
        if kind == "pipe":
            os.mkfifo(path, 0o600)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            os.mknod(path, 0o600 | stat.S_IFSOCK)
    uses = (
        lambda: FileStorage(tmp_path).read("blob"),
        lambda: load_identity(tmp_path, "identity.key"),
        StateLock(tmp_path).__enter__,
    )
    for use in uses:
        with pytest.raises(UsageError, match=r"cannot use .*--state-dir"):
            use()


def test_a_key_is_read_through_a_link(tmp_path: Path) -> None:
    made = load_identity(tmp_path / "secrets", "identity.key")
    (tmp_path / "identity.key").symlink_to(tmp_path / "secrets" / "identity.key")
    assert load_identity(tmp_path, "identity.key").seed == made.seed


def test_oversized_blobs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_storage, "MAX_BLOB_BYTES", 10)
    (tmp_path / "blob").write_bytes(bytes(11))
    with pytest.raises(UsageError, match="larger than"):
        FileStorage(tmp_path).read("blob")


def test_an_identity_is_made_once_and_kept(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    made = load_identity(directory, "identity.key")
    path = directory / "identity.key"
    text = path.read_text()
    assert len(text) == 65
    assert mode(path) == 0o600
    assert mode(directory) == 0o700
    again = load_identity(directory, "identity.key")
    assert again.seed == made.seed
    assert verify(made.node, "record", b"x", again.sign("record", b"x"))
    assert load_identity(directory, "owner.key").node != made.node
    assert path.read_text() == text
    assert sorted(p.name for p in directory.iterdir()) == ["identity.key", "owner.key"]


def test_two_processes_that_make_a_key_at_once_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = file_storage._create_key
    monkeypatch.setattr(file_storage, "_create_key", lambda path: (create(path), create(path)))
    made = load_identity(tmp_path, "identity.key")
    assert load_identity(tmp_path, "identity.key").seed == made.seed
    assert [p.name for p in tmp_path.iterdir()] == ["identity.key"]


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
def test_keys_that_others_can_use_are_refused(tmp_path: Path, bits: int) -> None:
    load_identity(tmp_path, "identity.key")
    path = tmp_path / "identity.key"
    path.chmod(bits)
    with pytest.raises(UsageError, match=f"chmod 600 {path}"):
        load_identity(tmp_path, "identity.key")
    path.chmod(0o400)
    load_identity(tmp_path, "identity.key")


@pytest.mark.parametrize(
    "text", ["", "\n", "ab" * 31, "ab" * 33, "zz" * 32, "ab" * 32 + "\nmore", "\x00" * 64, "é"]
)
def test_damaged_keys_are_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "identity.key"
    path.write_bytes(text.encode())
    path.chmod(0o600)
    with pytest.raises(UsageError, match="damaged; restore it, or move it away"):
        load_identity(tmp_path, "identity.key")
    assert path.read_bytes() == text.encode()


def test_a_key_in_an_unusable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot use"):
        load_identity(tmp_path / "file", "identity.key")


def test_one_node_per_state_directory(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with StateLock(directory):
        with pytest.raises(UsageError, match=rf"\(pid {os.getpid()}\).*--state-dir"):
            StateLock(directory).__enter__()
        with StateLock(tmp_path / "another"):
            pass
    with StateLock(directory):
        assert mode(directory / "node.lock") == 0o600


def test_a_lock_in_an_unusable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot use"):
        StateLock(tmp_path / "file").__enter__()


HOLDER = """
import sys
from pathlib import Path
from diffuse_core.adapters.file_storage import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(file_storage.__file__).parents[2],
    ) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(UsageError, match=rf"\(pid {holder.pid}\)"):
                StateLock(tmp_path).__enter__()
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait(10)
    with StateLock(tmp_path):
        pass
