"""The user's `config.toml`: where it lies, and how it is read."""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import UsageError
from diffuse_core.own_paths import full_path, opened_at_once, user_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONFIG = "DIFFUSE_CONFIG"
"""Names another file than the one in the config directory; /dev/null is for none."""
MAX_FILE = 2**16

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the file is, or would be.

    Raises:
        UsageError: there is no such place.
    """
    chosen = environ.get(CONFIG)
    if chosen:
        return _chosen(chosen)
    return user_directory("config", f"{CONFIG} to the name of a file") / "config.toml"


def _chosen(path: str) -> Path:
    try:
        return full_path(path)
    except UsageError as error:
        raise UsageError(f"{CONFIG}: {error}") from error


@dataclass(frozen=True)
class ConfigFile:
    """What a file holds. `private` says that nobody else can read it."""

    path: Path
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    private: bool = True
    there: bool = False

    def table(self, place: Sequence[str]) -> Mapping[str, Any]:
        """The table of a place, its keys written with `-`; empty when there is none.

        Raises:
            UsageError: one key stands there twice, with `-` and with `_`.
        """
        found: Any = self.content
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        keys: dict[str, Any] = {}
        for key, value in (found if isinstance(found, dict) else {}).items():
            if (name := key.replace("_", "-")) in keys:
                raise UsageError(f"{self.told((*place, name))} stands there twice; leave one out")
            keys[name] = value
        return keys

    def told(self, keys: Sequence[str]) -> str:
        """A key of the file, for messages."""
        return clean(f"{'.'.join(keys)} in {self.path}")


def read_config(environ: Mapping[str, str] = os.environ) -> ConfigFile:
    """Read the file; nothing is in it where there is none and none was named.

    Raises:
        UsageError: it cannot be read, is no TOML, is too large, or others may write it.
    """
    try:
        path = config_path(environ)
    except UsageError:
        if environ.get(CONFIG):
            raise
        path = Path(os.devnull)  # Who has no home has no file there.
    if str(path) == os.devnull:
        return ConfigFile(path)
    try:
        with open(path, "rb", opener=opened_at_once) as file:
            found = os.fstat(file.fileno())
            _check_file(path, found)
            data = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        if environ.get(CONFIG):
            raise UsageError(
                f"there is no {path}, which {CONFIG} names; make it with `diffuse config init`, "
                "or unset the variable"
            ) from None
        return ConfigFile(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot read the settings in {path}: {reason.lower()}; mend that, or name another "
            f"file in {CONFIG} ({os.devnull} is for none)"
        ) from error
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} is larger than {MAX_FILE} bytes, which no settings are")
    private = os.name != "posix" or not found.st_mode & _OTHERS
    return ConfigFile(path, _parse(path, data), private, there=True)


def _check_file(path: Path, found: os.stat_result) -> None:
    """Refuse settings that somebody else could write: they say whom to trust."""
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is no file; settings are read from files only")
    if os.name != "posix":
        return
    if found.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{path} belongs to another user, who could change what you set there")
    if found.st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"others may write to {path} (mode {found.st_mode & 0o777:o}), and could change what "
            f"you set there; run: chmod go-w {shlex.quote(str(path))}"
        )


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8; save it as such") from error
    except (ValueError, RecursionError) as error:
        said = clean(str(error))[:200]
        raise UsageError(f"{path} is no TOML: {said}; mend that line") from error
