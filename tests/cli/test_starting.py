"""What keeps a node from starting is told before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import load_identity
from diffuse_core.cli import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "arguments",
    [
        ["node", "--relay", "always", "--public-addr", "a.example.org:9440"],
        ["node", "--listen", "127.0.0.1:70000"],
        ["node", "--listen", "no such host:1"],
        ["node", "--listen", "nohost.invalid:9440"],
        ["sentinel", "--listen", "203.0.113.5:9440"],
        ["sentinel", "--listen", "[2001:db8::1]:9440"],
        ["host", "--model", "demo", "--memory", "1"],
        ["host", "--model", "demo", "--bootstrap", "127.0.0.1:0"],
    ],
)
def test_no_directory_is_made(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert run([*arguments, "--state-dir", str(state)]) == 2
    assert capsys.readouterr().err.startswith("diffuse: ")
    assert not state.exists()


@pytest.mark.parametrize("command", [["node"], ["sentinel"], ["host", "--model", "demo"]])
def test_a_node_is_not_its_own_owner(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_identity(tmp_path, "identity.key")
    (tmp_path / "owner.key").write_bytes((tmp_path / "identity.key").read_bytes())
    (tmp_path / "owner.key").chmod(0o600)
    assert run([*command, "--state-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    for name in ("identity.key", "owner.key"):
        assert f"`mv {tmp_path / name} {tmp_path / name}.old`" in told
    assert sorted(file.name for file in tmp_path.iterdir()) == ["identity.key", "owner.key"]
