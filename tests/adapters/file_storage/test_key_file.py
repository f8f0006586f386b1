"""Key files: private, checked, never overwritten, and whole after a crash at any step."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diffuse_core.adapters.file_storage import (
    FileStorage,
    export_key,
    install_identity,
    load_identity,
    read_identity,
)
from diffuse_core.domain.identity import Identity, verify
from diffuse_core.errors import UsageError

NAME = "identity.key"
posix = pytest.mark.skipif(os.name != "posix", reason="modes and owners of files")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_identity_is_made_once_and_kept(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "state"
    assert read_identity(directory, NAME) is None
    assert not directory.exists()
    made = load_identity(directory, NAME)
    path = directory / NAME
    text = path.read_text()
    assert text == f"{made.seed.hex()}\n{made.node.hex()}\n"
    assert (mode(path), mode(directory)) == (0o600, 0o700)
    again = load_identity(directory, NAME)
    assert again.seed == made.seed
    assert verify(made.node, "record", b"x", again.sign("record", b"x"))
    assert load_identity(directory, "owner.key").node != made.node
    assert path.read_text() == text
    assert names(directory) == [NAME, "owner.key"]


@posix
def test_whatever_the_umask_its_owner_can_read_a_key(tmp_path: Path) -> None:
    former = os.umask(0o777)
    try:
        assert export_key(tmp_path / "a.key", Identity(b"1" * 32))
        made = load_identity(tmp_path, NAME)
    finally:
        os.umask(former)
    assert (mode(tmp_path / "a.key"), mode(tmp_path / NAME)) == (0o600, 0o600)
    assert load_identity(tmp_path, NAME).seed == made.seed


def test_who_is_slower_takes_the_key_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = Identity(b"f" * 32)
    plain = os.link

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", plain)
        install_identity(tmp_path, NAME, faster)
        plain(source, target)

    monkeypatch.setattr(os, "link", late)
    assert load_identity(tmp_path, NAME).seed == faster.seed
    assert names(tmp_path) == [NAME]


def test_an_identity_made_elsewhere_is_installed_once(tmp_path: Path) -> None:
    one, other = Identity(b"1" * 32), Identity(b"2" * 32)
    directory = tmp_path / "my state"
    path = install_identity(directory, NAME, one)
    assert mode(path) == 0o600
    with pytest.raises(UsageError, match=r"never overwritten; first run: mv '.*my state/"):
        install_identity(directory, NAME, other)
    assert load_identity(directory, NAME).node == one.node
    assert names(directory) == [NAME]


# --- who may use it ------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666, 0o700 | 0o010])
def test_keys_that_others_can_use_are_refused(tmp_path: Path, bits: int) -> None:
    load_identity(tmp_path, NAME)
    path = tmp_path / NAME
    path.chmod(bits)
    with pytest.raises(UsageError, match=f"mode {bits:o}.*chmod 600 {path}"):
        load_identity(tmp_path, NAME)
    path.chmod(0o400)
    load_identity(tmp_path, NAME)


@posix
@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777 | 0o1000])
def test_directories_that_others_can_write_to_are_refused(tmp_path: Path, bits: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(bits)
    uses = (
        lambda: load_identity(directory, NAME),
        lambda: read_identity(directory, NAME),
        lambda: install_identity(directory, NAME, Identity(b"i" * 32)),
    )
    for use in uses:
        with pytest.raises(UsageError, match=f"others may write.*chmod go-w {directory}"):
            use()
    assert names(directory) == []
    directory.chmod(0o755)
    load_identity(directory, NAME)


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, what: str) -> None:
    directory = tmp_path / "state"
    load_identity(directory, NAME)
    path = directory if what == "directory" else directory / NAME
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match=rf"another user \(uid 12345\).*chown 0 {path}"):
        load_identity(directory, NAME)
    os.chown(path, 0, -1)
    load_identity(directory, NAME)


def test_a_key_is_read_through_a_link(tmp_path: Path) -> None:
    made = load_identity(tmp_path / "secrets", NAME)
    (tmp_path / NAME).symlink_to(tmp_path / "secrets" / NAME)
    assert load_identity(tmp_path, NAME).seed == made.seed


def test_a_link_to_nothing_is_no_fresh_start(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "unplugged" / NAME)
    with pytest.raises(UsageError, match="a link to nothing"):
        load_identity(tmp_path, NAME)
    assert names(tmp_path) == [NAME]


# --- damage --------------------------------------------------------------------------------

SEED = b"\xab" * 32
GOOD = f"{SEED.hex()}\n{Identity(SEED).node.hex()}\n"


def put(directory: Path, data: bytes) -> Path:
    path = directory / NAME
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.upper(),
        GOOD.rstrip(),
        GOOD.replace("\n", "\r\n"),
        SEED.hex(),
        SEED.hex() + "\n",
        f" {SEED.hex()}\r\n",
    ],
)
def test_what_is_sound_is_taken_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text.encode())
    assert load_identity(tmp_path, NAME).seed == SEED
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "ab" * 31,
        "ab" * 33,
        "zz" * 32,
        "ab" * 32 + "\nmore",
        "\x00" * 64,
        "é",
        "ab" * 64,
        GOOD + GOOD,
        "ab" * 32 + "\n" + "cd" * 32,
        GOOD + " " * 300,
        GOOD[:-2],
    ],
)
def test_damaged_keys_are_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text.encode())
    with pytest.raises(UsageError, match="damaged; restore it, or move it away"):
        load_identity(tmp_path, NAME)
    assert path.read_bytes() == text.encode()


def test_no_wrong_digit_makes_another_identity(tmp_path: Path) -> None:
    for place, digit in enumerate(GOOD):
        if digit == "\n":
            continue
        wrong = "0" if digit != "0" else "1"
        put(tmp_path, f"{GOOD[:place]}{wrong}{GOOD[place + 1 :]}".encode())
        with pytest.raises(UsageError, match="damaged"):
            load_identity(tmp_path, NAME)


def test_a_file_cut_short_is_damaged_or_still_the_same_key(tmp_path: Path) -> None:
    for length in range(len(GOOD)):
        put(tmp_path, GOOD[:length].encode())
        try:
            assert load_identity(tmp_path, NAME).seed == SEED
        except UsageError as error:
            assert "damaged" in str(error)  # noqa: PT017 - either end is good


def test_a_key_in_an_unusable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o600)
    with pytest.raises(UsageError, match="cannot use"):
        load_identity(tmp_path / "file", NAME)


# --- a crash, or a full disk, at any step --------------------------------------------------

CALLS = ("open", "write", "fsync", "close", "link", "replace", "unlink", "mkdir")


class Crash(BaseException):
    """The process is gone; nothing of ours runs any more."""


class Failing:
    """Lets system calls pass until the n-th, which fails; after a crash all of them do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int, error: BaseException) -> None:
        self.left = nth
        self.error = error
        for call in CALLS:
            monkeypatch.setattr(os, call, self._wrapped(getattr(os, call)))

    def _wrapped(self, plain: object) -> object:
        def call(*given: object, **more: object) -> object:
            self.left -= 1
            if self.left == 0 or (self.left < 0 and isinstance(self.error, Crash)):
                raise self.error
            return plain(*given, **more)

        return call


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Crash()], ids=repr)
def test_a_failure_at_any_step_leaves_no_half_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    ended, nth = False, 0
    while not ended:
        nth += 1
        directory = tmp_path / str(nth)
        got = None
        with monkeypatch.context() as patch, contextlib.suppress(UsageError, OSError, Crash):
            failing = Failing(patch, nth, error)
            got = load_identity(directory, NAME)
        ended = failing.left > 0
        there = (directory / NAME).exists()
        kept = load_identity(directory, NAME)
        assert got is None or (there and got.seed == kept.seed)
        assert kept.seed == load_identity(directory, NAME).seed
        if isinstance(error, OSError):
            litter = [name for name in names(directory) if name != NAME]
            # Only what could not be removed may be left.
            assert len(litter) <= (failing.left <= 0)
    assert nth > 6


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Crash()], ids=repr)
def test_a_failure_at_any_step_leaves_the_old_blob_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    storage = FileStorage(tmp_path / "state")
    ended, nth, seen = False, 0, set()
    while not ended:
        nth += 1
        storage.write("blob", b"old")
        done = False
        with monkeypatch.context() as patch, contextlib.suppress(UsageError, OSError, Crash):
            failing = Failing(patch, nth, error)
            storage.write("blob", b"new" * 1000)
            done = True
        ended = failing.left > 0
        found = storage.read("blob")
        assert found in (b"old", b"new" * 1000)
        assert found != b"old" or not done
        seen.add(found)
    assert len(seen) == 2
    assert nth > 5


def test_what_the_system_writes_in_parts_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.write
    monkeypatch.setattr(os, "write", lambda file, data: plain(file, data[:7]))
    made = load_identity(tmp_path, NAME)
    FileStorage(tmp_path).write("blob", b"blob" * 100)
    assert load_identity(tmp_path, NAME).seed == made.seed
    assert FileStorage(tmp_path).read("blob") == b"blob" * 100


FULL = """
import sys
from pathlib import Path
from diffuse_core.adapters.file_storage import FileStorage, load_identity
from diffuse_core.errors import UsageError
state = Path(sys.argv[1])
storage = FileStorage(state)
storage.write("blob", b"old" * 100)
try:
    storage.write("blob", b"new" * 100_000)
except UsageError as error:
    print(error)
print(storage.read("blob") == b"old" * 100, sorted(path.name for path in state.iterdir()))
with open(state / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(b"x"):
            pass
    except OSError:
        pass
try:
    load_identity(state, "identity.key")
except UsageError as error:
    print(error)
(state / "filler").unlink()
load_identity(state, "identity.key")
print(sorted(path.name for path in state.iterdir()))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no `unshare` command here")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    mount = f"mount -t tmpfs -o size=8k,mode=700 tmpfs {state}"
    within = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    tried = subprocess.run([*within, "sh", "-c", mount], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.decode().strip()}")
    run = 'mount -t tmpfs -o size=8k,mode=700 tmpfs "$0" && exec "$1" -c "$2" "$0"'
    done = subprocess.run(
        [*within, "sh", "-c", run, str(state), sys.executable, FULL],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    first, kept, second, left = done.stdout.splitlines()
    for told in (first, second):
        assert "no space left on device; free some space" in told
    assert kept == "True ['blob']"
    assert left == "['blob', 'identity.key']"
