"""The options of networks: where they come from, what is refused, and that secrets stay secret."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest

from diffuse_core.cli import run
from diffuse_core.cli.common import common
from diffuse_core.cli.layers import LayeredGroup
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.network_key import derive_key
from diffuse_core.errors import UsageError
from diffuse_core.settings import (
    NODE_FILE,
    NetworkOptions,
    NodeFile,
    network_options,
    process_start,
    running_node,
)
from diffuse_tui.launch import _parse

if TYPE_CHECKING:
    from pathlib import Path

ID = Identity(b"i" * 32).node


def given(*arguments: str) -> NetworkOptions:
    """What a command gets."""
    found: list[NetworkOptions] = []

    @click.command()
    @common
    def command(**options: Any) -> None:
        found.append(options["network"])
        assert not {"network_key", "network_key_file", "allow", "mdns"} & set(options)

    group = LayeredGroup(commands={"command": command})
    group.main(["command", *arguments], standalone_mode=False)
    return found[0]


def test_without_options_it_is_the_public_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIFFUSE_MDNS")
    assert given() == NetworkOptions("public", None, None, mdns=True)
    assert given().key is None


def test_the_environment_counts_where_nothing_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIFFUSE_NETWORK", "ours")
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", "from the environment")
    assert (given().name, given().secret) == ("ours", "from the environment")
    file = tmp_path / "key"
    file.write_text("  from a file \nsecond line\n")
    assert given("--network-key-file", str(file)) == NetworkOptions(
        "ours", "from a file", None, False
    )
    assert given("--network-key", "k", "--network", "n") == NetworkOptions("n", "k", None, False)


@pytest.mark.parametrize(
    ("value", "arguments", "on"),
    [
        ("0", (), False),
        ("no", (), False),
        ("1", (), True),
        ("", (), True),
        ("0", ("--mdns",), True),
        ("1", ("--no-mdns",), False),
    ],
)
def test_multicast_is_on_unless_it_is_switched_off(
    value: str, arguments: tuple[str, ...], on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_MDNS", value)
    assert given(*arguments).mdns is on
    assert _parse(list(arguments)).network.mdns is on


def test_the_key_is_made_of_the_name_and_the_secret() -> None:
    assert NetworkOptions("net", "secret").key == derive_key("net", "secret")


def test_a_key_may_be_any_bytes_and_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe\n")
    secret = os.fsdecode(b"\xff\xfe")
    made = given("--network-key-file", str(file))
    assert made.key == given("--network-key", secret).key != derive_key("public", "??")
    monkeypatch.setenv("DIFFUSE_NETWORK_KEY", secret)
    assert given().key == made.key


def test_files_of_other_editors_say_the_same(tmp_path: Path) -> None:
    """A byte order mark before, and two characters at the end of each line."""
    file = tmp_path / "file"
    file.write_bytes(b"\xef\xbb\xbfhush\r\n")
    assert given("--network-key-file", str(file)) == given("--network-key", "hush")
    file.write_bytes(f"\ufeff{ID.hex()}\r\n# no more\r\n".encode())
    assert given("--allow", str(file)).allowed == {ID}


def test_a_pipe_may_hold_the_key(tmp_path: Path) -> None:
    """As a shell gives it for `<(...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"hush\n")
    os.close(writing)
    assert given("--network-key-file", f"/dev/fd/{reading}") == given("--network-key", "hush")
    os.close(reading)


def test_a_pipe_in_place_of_a_node_file_is_no_node(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NODE_FILE)
    assert running_node(tmp_path) is None


@pytest.mark.parametrize(("later", "runs"), [(0.0, True), (1.0, True), (-60.0, False)])
def test_a_process_that_got_the_number_of_a_node_is_none(
    tmp_path: Path, later: float, runs: bool
) -> None:
    """What a power cut leaves behind, and who has its number after it."""
    left = NodeFile("127.0.0.1:1", ID.hex(), os.getpid(), process_start(os.getpid()) + later)
    (tmp_path / NODE_FILE).write_bytes(msgspec.json.encode(left))
    assert (running_node(tmp_path) is not None) == runs


def test_a_process_that_has_ended_is_no_node(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    (tmp_path / NODE_FILE).write_bytes(msgspec.json.encode(NodeFile("a:1", "00", child.pid)))
    assert running_node(tmp_path) is None


def test_allowed_nodes_are_given_by_id_and_by_file(tmp_path: Path) -> None:
    file = tmp_path / "friends"
    file.write_text(f"{'ab' * 32}  # laptop\n")
    found = given("--allow", ID.hex(), "--allow", str(file)).allowed
    assert found == {ID, bytes.fromhex("ab" * 32)}
    assert given().allowed is None


def test_the_app_reads_the_same(tmp_path: Path) -> None:
    arguments = ["--network", "n", "--network-key", "s", "--allow", ID.hex(), "--no-mdns"]
    assert _parse(arguments).network == given(*arguments)


def test_a_command_that_is_started_gets_the_same_without_showing_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = NetworkOptions("n", "hush", frozenset({ID}), mdns=False)
    assert "hush" not in " ".join(options.arguments())
    for name, value in options.environment().items():
        monkeypatch.setenv(name, value)
    assert given(*options.arguments()) == options
    assert "DIFFUSE_NETWORK_KEY" not in NetworkOptions("n").environment()


def test_the_secret_is_in_no_representation() -> None:
    assert "hush" not in repr(NetworkOptions("n", "hush"))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--network", ""], "1 to 64 bytes"),
        (["--network", "é" * 33], "1 to 64 bytes"),
        (["--network", os.fsdecode(b"\xff")], "UTF-8"),
        (["--network-key", "\ud800"], "text or bytes"),
        (["--network-key", ""], "1 to 1024 bytes"),
        (["--network-key", "s" * 1025], "1 to 1024 bytes"),
        (["--network-key", "s", "--network-key-file", "f"], "not both"),
        (["--network-key-file", "/nowhere/at/all"], "cannot read"),
        (["--network-key-file", "/dev/null"], "1 to 1024 bytes"),
        (["--network-key-file", "/dev/zero"], "larger than"),
        (["--network-key-file", "a\0b"], "cannot read"),
        (["--allow", "abcd1234"], "short one"),
        (["--allow", "ab" * 33], "no node id"),
        (["--allow", "/nowhere/at/all"], "cannot read"),
        (["--allow", "/dev/zero"], "larger than"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=word):
        given(*arguments)
    if "\0" not in "".join(arguments):
        assert run(["models", *arguments]) == 2
        assert "ssss" not in capsys.readouterr().err


def test_a_bad_line_of_a_list_is_named(tmp_path: Path) -> None:
    file = tmp_path / "friends"
    file.write_text(f"{ID.hex()}\n{ID.hex()[:8]}\n")
    with pytest.raises(UsageError, match="friends, line 2"):
        network_options(None, None, None, [str(file)], mdns=None)


def test_demo_is_of_new_nodes_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--allow", ID.hex()]) == 2
    assert "--allow" in capsys.readouterr().err
