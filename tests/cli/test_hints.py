"""Commands that messages name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage import key_file
from diffuse_core.cli.hints import command_of_key
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_is_read_by_the_same_user() -> None:
    assert command_of_key("serve --print-key", "/x y", {}) == (
        "diffuse serve --print-key --state-dir '/x y'"
    )


def test_the_key_of_a_service_is_read_as_its_user() -> None:
    under_systemd = {"STATE_DIRECTORY": "/var/lib/diffuse-serve:/var/lib/other"}
    assert command_of_key("serve --print-key", None, under_systemd) == (
        "sudo diffuse service ask --name diffuse-serve serve --print-key"
    )


@pytest.mark.skipif(os.name != "posix", reason="owners of files are POSIX's")
def test_the_state_of_a_service_is_not_to_be_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=f"another --state-dir, or run: chown {owner + 1}"):
        key_file.check_directory(tmp_path)
    monkeypatch.setattr(key_file, "_OF_ACCOUNTS", tmp_path.parent)
    told = (
        f"if it is that of a service: sudo diffuse service ask COMMAND; else .*chown {owner + 1}"
    )
    with pytest.raises(UsageError, match=told):
        key_file.check_directory(tmp_path)
    monkeypatch.setattr(key_file, "_OF_SERVICES", tmp_path)
    (tmp_path / "diffuse-host").mkdir()
    with pytest.raises(UsageError, match="that of a service: sudo diffuse service ask"):
        key_file.check_directory(tmp_path / "diffuse-host")
