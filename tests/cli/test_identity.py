"""`diffuse identity`: shows no secret, overwrites nothing, and keys survive the round trip."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import FileStorage, StateLock, load_identity
from diffuse_core.cli import run
from diffuse_core.settings import NODE_FILE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Said = tuple[int, str, str]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], state: Path) -> Callable[..., Said]:
    """Run `diffuse identity`; its exit code, stdout and stderr."""

    def command(*arguments: object, at: Path = state) -> Said:
        code = run(["identity", *map(str, arguments), "--state-dir", str(at)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def make(state: Path) -> tuple[str, str]:
    return tuple(load_identity(state, f"{name}.key").node.hex() for name in ("identity", "owner"))


# --- show ----------------------------------------------------------------------------------


def test_a_fresh_directory_has_none_and_none_is_made(say: Callable, state: Path) -> None:
    code, out, _ = say("show")
    assert code == 0
    assert f"no identity in {state} yet: the first `diffuse host`" in out
    code, out, _ = say("show", "--json")
    told = json.loads(out)
    assert (told["node"], told["owner"], told["running"]) == (None, None, None)
    assert not state.exists()


def test_ids_and_files_are_shown_and_no_secret(say: Callable, state: Path) -> None:
    node, owner = make(state)
    secrets = [load_identity(state, f"{name}.key").seed.hex() for name in ("identity", "owner")]
    code, out, err = say("show")
    assert code == 0
    assert f"node   {node}  {state / 'identity.key'}\n" in out
    assert f"owner  {owner}  {state / 'owner.key'}\n" in out
    assert "no node runs with it now" in out
    code, shown, _ = say("show", "--json")
    told = json.loads(shown)
    assert told["node"] == node
    assert told["owner"] == owner
    assert told["node_file"] == str(state / "identity.key")
    assert not any(secret in out + err + shown for secret in secrets)


def test_a_node_that_runs_is_told(say: Callable, state: Path) -> None:
    node, _ = make(state)
    running = {"address": "127.0.0.1:9440", "node": node, "pid": os.getpid()}
    FileStorage(state).write(NODE_FILE, json.dumps(running).encode())
    assert f"runs with it now: pid {os.getpid()}, 127.0.0.1:9440" in say("show")[1]
    told = json.loads(say("show", "--json")[1])
    assert told["running"] == {"pid": os.getpid(), "address": "127.0.0.1:9440"}


def test_a_key_that_cannot_be_used_is_told(say: Callable, state: Path) -> None:
    make(state)
    (state / "owner.key").chmod(0o644)
    code, out, err = say("show")
    assert (code, out) == (2, "")
    assert f"chmod 600 {state / 'owner.key'}" in err


# --- export and import ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node", "owner"])
def test_a_key_goes_to_another_directory(
    say: Callable, state: Path, tmp_path: Path, kind: str
) -> None:
    ids = dict(zip(("node", "owner"), make(state), strict=True))
    which = ["--owner"] if kind == "owner" else []
    file, other = tmp_path / "copy", tmp_path / "other"
    code, out, err = say("export", file, *which)
    assert (code, err) == (0, "")
    assert out == f"wrote the key of {kind} {ids[kind]} to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    code, out, err = say("import", file, *which, at=other)
    assert (code, err) == (0, "")
    name = "owner.key" if kind == "owner" else "identity.key"
    assert out == f"the key of {kind} {ids[kind]} is now in {other / name}\n"
    assert (other / name).read_bytes() == (state / name).read_bytes()
    assert (other / name).stat().st_mode & 0o777 == 0o600
    told = json.loads(say("show", "--json", at=other)[1])
    assert told[kind] == ids[kind]
    assert told["owner" if kind == "node" else "node"] is None


def test_both_tell_scripts(say: Callable, state: Path, tmp_path: Path) -> None:
    node, _ = make(state)
    file, other = tmp_path / "copy", tmp_path / "other"
    assert json.loads(say("export", file, "--json")[1]) == {"node": node, "file": str(file)}
    told = json.loads(say("import", file, "--json", at=other)[1])
    assert told == {"node": node, "file": str(other / "identity.key")}
    code, out, err = say("export", "-", "--json")
    assert (code, out) == (2, "")
    assert "not both" in err


def test_a_key_goes_through_pipes(
    say: Callable, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(state)
    code, out, err = say("export", "-")
    assert (code, err) == (0, "")
    assert out == (state / "identity.key").read_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    assert say("import", "-", at=tmp_path / "other")[0] == 0
    assert (tmp_path / "other" / "identity.key").read_text() == out


def test_a_secret_on_a_screen_is_warned_of(
    say: Callable, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(state)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, out, err = say("export", "-")
    assert "this is a secret" in err
    assert out == (state / "identity.key").read_text()


def test_there_must_be_a_key_to_export(say: Callable, state: Path, tmp_path: Path) -> None:
    code, _, err = say("export", tmp_path / "copy")
    assert code == 2
    assert f"no identity.key in {state} to export" in err
    assert not (tmp_path / "copy").exists()
    assert not state.exists()


@pytest.mark.parametrize("what", ["file", "directory", "link", "dangling", "pipe"])
def test_nothing_is_overwritten_by_an_export(
    say: Callable, state: Path, tmp_path: Path, what: str
) -> None:
    make(state)
    file, target = tmp_path / "copy", tmp_path / "target"
    if what == "file":
        file.write_text("dear")
    elif what == "directory":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(target)
        if what == "link":
            target.write_text("dear")
    code, out, err = say("export", file)
    assert (code, out) == (2, "")
    assert "is there already, and not overwritten; give another FILE" in err
    assert not target.exists() or target.read_text() == "dear"
    assert what != "file" or file.read_text() == "dear"


def test_an_export_that_fails_leaves_nothing(
    say: Callable, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(state)
    assert "mend that, or give another FILE" in say("export", tmp_path / "no" / "copy")[2]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = say("export", tmp_path / "copy")
    assert code == 2
    assert "free some space, or give another FILE" in err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["identity.key", "owner.key"])
def test_a_key_that_is_there_stays(say: Callable, state: Path, tmp_path: Path, name: str) -> None:
    make(state)
    before = (state / name).read_bytes()
    make(tmp_path / "other")
    which = ["--owner"] if name == "owner.key" else []
    code, out, err = say("import", tmp_path / "other" / name, *which)
    assert (code, out) == (2, "")
    assert f"first run: mv {state / name} {state / name}.old" in err
    assert (state / name).read_bytes() == before


def test_no_key_is_changed_under_a_running_node(
    say: Callable, state: Path, tmp_path: Path
) -> None:
    make(tmp_path / "other")
    with StateLock(state):
        code, _, err = say("import", tmp_path / "other" / "identity.key")
    assert code == 2
    assert f"(pid {os.getpid()})" in err
    assert f"stop it first: diffuse stop --state-dir {state}\n" in err
    assert "give this one" not in err
    assert not (state / "identity.key").exists()
    assert say("import", tmp_path / "other" / "identity.key")[0] == 0


SEED = "ab" * 32


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n" * 3,
        SEED[:-1].encode(),
        f"{SEED}\n{SEED}\n".encode(),
        b"\xff" * 64,
        f"{SEED}\n".encode() + b" " * 2**20,
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    ],
    ids=len,
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_what_is_no_sound_key_is_refused(
    say: Callable,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    way: str,
) -> None:
    file = tmp_path / "copy"
    file.write_bytes(content)
    file.chmod(0o600)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    code, _, err = say("import", file if way == "file" else "-")
    assert code == 2
    assert ("holds no key, or a damaged one" if content else "holds no key: it is empty") in err
    assert not state.exists()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", "no such file"),
        ("directory", "it is a directory, no file; give another FILE"),
        ("pipe", "it is a pipe, no file; pipe into `diffuse identity import - --state-dir "),
        ("device", "it is a device, no file; give another FILE"),
    ],
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    say: Callable, state: Path, tmp_path: Path, what: str, told: str
) -> None:
    file = tmp_path / "copy"
    if what == "directory":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file, 0o600)
    elif what == "device":
        file.symlink_to("/dev/zero")
    code, _, err = say("import", file)
    assert code == 2
    assert f"cannot use {file}" in err
    assert told in err
    assert "give another FILE" in err
    assert "move it away" not in err
    assert not state.exists()


def test_the_pipe_of_a_shell_is_sent_to_stdin(say: Callable, state: Path) -> None:
    reader, writer = os.pipe()
    try:
        code, _, err = say("import", f"/dev/fd/{reader}", "--owner")
    finally:
        os.close(reader)
        os.close(writer)
    assert code == 2
    assert f"pipe into `diffuse identity import - --owner --state-dir {state}`" in err


@pytest.mark.parametrize(("kind", "there"), [("node", "owner.key"), ("owner", "identity.key")])
def test_no_node_becomes_its_own_owner(
    say: Callable, state: Path, tmp_path: Path, kind: str, there: str
) -> None:
    """Who calls on such a node as its owner looks like the node itself."""
    load_identity(state, there)
    which = ["--owner"] if kind == "owner" else []
    code, out, err = say("import", state / there, *which)
    assert (code, out) == (2, "")
    assert f"which {state / there} holds already" in err
    assert f"a copy of the {kind}'s key" in err
    assert sorted(file.name for file in state.iterdir()) == [there]
    other = tmp_path / "other"
    make(other)
    name = "owner.key" if kind == "owner" else "identity.key"
    assert say("import", other / name, *which)[0] == 0


def test_an_empty_key_file_is_told_before_its_mode(say: Callable, state: Path) -> None:
    make(state)
    (state / "identity.key").write_bytes(b"")
    (state / "identity.key").chmod(0o644)
    code, _, err = say("show")
    assert code == 2
    assert "is empty, and so damaged; restore it" in err
    assert "chmod" not in err


def test_hints_name_the_directory_that_was_given(say: Callable, tmp_path: Path) -> None:
    place = tmp_path / "my state"
    assert f"`diffuse identity import FILE --state-dir '{place}'`" in say("show", at=place)[1]


def test_a_file_that_others_can_read_is_taken_with_a_warning(
    say: Callable, state: Path, tmp_path: Path
) -> None:
    """A memory stick gives every file the mode 755."""
    file = tmp_path / "my copy"
    file.write_text(SEED)
    file.chmod(0o755)
    code, out, err = say("import", file)
    assert code == 0
    assert "is now in" in out
    assert f"others can read {file} (mode 755); run: chmod 600 '{file}'" in err
    assert load_identity(state, "identity.key").seed.hex() == SEED
    assert (state / "identity.key").stat().st_mode & 0o777 == 0o600


def test_a_place_without_owners_of_files_is_told(
    say: Callable, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(state)
    plain, change = os.open, os.fchmod

    def wide(path: object, flags: int, *more: int) -> int:
        descriptor = plain(path, flags, *more)
        if flags & os.O_CREAT:
            change(descriptor, 0o755)
        return descriptor

    monkeypatch.setattr(os, "open", wide)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    code, out, err = say("export", tmp_path / "copy")
    assert code == 0
    assert "wrote the key" in out
    assert f"others can read {tmp_path / 'copy'}" in err


@pytest.mark.parametrize("command", ["show", "export", "import"])
def test_help_has_examples_and_warns(say: Callable, command: str) -> None:
    code, out, _ = say(command, "--help")
    assert code == 0
    assert f"diffuse identity {command}" in out
    assert "one place only" in out or "second node with it" in out or command == "show"
