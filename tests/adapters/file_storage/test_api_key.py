"""The API key: made once, private, and refused where others could have it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.file_storage.api_key import (
    API_KEY,
    check_api_key,
    load_api_key,
    read_api_key,
)
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "sk-" + "a" * 40
posix = pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_text(text)
    path.chmod(mode)
    return path


@posix
def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key = load_api_key(tmp_path / "state")
    finally:
        os.umask(before)
    path = tmp_path / "state" / API_KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert key.startswith("sk-")
    assert len(key) > 40
    assert load_api_key(tmp_path / "state") == key
    assert load_api_key(tmp_path / "other") != key
    assert [found.name for found in path.parent.iterdir()] == [API_KEY]


def test_many_that_start_at_once_agree_on_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(load_api_key, [tmp_path / "state"] * 32))
    assert len(keys) == 1


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o660])
def test_a_key_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "state" / API_KEY, GOOD, mode)
    with pytest.raises(UsageError, match=f"mode {mode:o}.*chmod 600"):
        load_api_key(path.parent)


@posix
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(UsageError, match="chmod go-w"):
        load_api_key(directory)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("text", ["", "short", "a b" * 20, "ä" * 40, "a" * 300, "a" * 2000])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "state" / API_KEY, text)
    with pytest.raises(UsageError, match=r"api\.key is damaged") as caught:
        load_api_key(path.parent)
    assert not text or text not in str(caught.value)


def test_a_link_to_nothing_and_a_pipe_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    (directory / API_KEY).symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="link to nothing"):
        load_api_key(directory)
    if hasattr(os, "mkfifo"):
        os.mkfifo(directory / "pipe")
        with pytest.raises(UsageError, match="a pipe"):
            read_api_key(directory / "pipe")


@posix
@pytest.mark.parametrize(("mode", "fit"), [(0o600, True), (0o440, True), (0o644, False)])
def test_a_key_that_was_put_there_may_be_of_a_group_but_not_of_all(
    tmp_path: Path, mode: int, fit: bool
) -> None:
    path = write(tmp_path / "given", f"{GOOD}\n", mode)
    if fit:
        assert read_api_key(path) == GOOD
    else:
        with pytest.raises(UsageError, match=r"everybody.*chmod o-rwx"):
            read_api_key(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give another --api-key-file"):
        read_api_key(tmp_path / "none")


def test_a_key_of_the_environment_is_checked() -> None:
    assert check_api_key(GOOD, "DIFFUSE_API_KEY") == GOOD
    with pytest.raises(UsageError, match="DIFFUSE_API_KEY: an API key has 16 to 256") as caught:
        check_api_key("secret", "DIFFUSE_API_KEY")
    assert "secret" not in str(caught.value)
