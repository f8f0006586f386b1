"""One node for each state directory; what is in the way is told, and never waited for."""

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
from diffuse_core.adapters.file_storage.state_lock import LOCK_NAME
from diffuse_core.errors import UsageError


def test_one_node_per_state_directory(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    with StateLock(directory):
        with pytest.raises(UsageError, match=rf"\(pid {os.getpid()}\).*--state-dir"):
            StateLock(directory).__enter__()
        with StateLock(tmp_path / "another"):
            pass
    with StateLock(directory):
        assert (directory / LOCK_NAME).stat().st_mode & 0o777 == 0o600


def test_who_has_not_said_yet_who_it_is_is_no_node(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        (tmp_path / LOCK_NAME).write_bytes(b"")
        with pytest.raises(UsageError, match=r"another command uses .*; try again"):
            StateLock(tmp_path).__enter__()


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
        cwd=Path(file_storage.__file__).parents[3],
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


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices in directories")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_would_be_waited_for_is_refused(tmp_path: Path, kind: str) -> None:
    """Pytest's own time limit ends this test where it waits."""
    for name in ("blob", "identity.key", LOCK_NAME):
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
