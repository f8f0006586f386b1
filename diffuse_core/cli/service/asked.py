"""Other commands as the user of a service, with its keys: `status`, `drain`, `serve --print-key`.

Its state belongs to a user that systemd makes up, in a directory that only root may enter, and
keys of other users are refused. So systemd itself is asked to run the command as that user.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING

from diffuse_core.cli.service.unit import MARK
from diffuse_core.errors import DiffuseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TAKEN = (
    "User",
    "DynamicUser",
    "StateDirectory",
    "StateDirectoryMode",
    "CacheDirectory",
    "CacheDirectoryMode",
    "UMask",
    "EnvironmentFile",
    "LoadCredential",
)
_PLACES = {"%S": "/var/lib", "%C": "/var/cache", "%%": "%"}
_SHARED = ("--state-dir", "--network")
"""Options of the service that whoever asks it something needs too."""
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}")


def run_words(name: str, text: str, words: Sequence[str]) -> list[str]:
    """The command line that has systemd run `words` of diffuse beside the service of a unit.

    Raises:
        UsageError: `diffuse service` did not write the unit, or not as it is now, or it has no
            user to be found.
    """
    if not text.startswith(MARK):
        raise UsageError(f"`diffuse service` did not write the unit of {name}")
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    found = [(key, _plain(value, name)) for key, _, value in lines]
    taken = [(key, value) for key, value in found if key in _TAKEN]
    if "User" not in dict(taken):
        # What systemd makes of the unit's name; of others it makes a hash.
        if _ACCOUNT.fullmatch(name) is None:
            raise UsageError(f"the user of {name} has no plain name; give it a shorter --name")
        taken.append(("User", name))
    own = f"{name}-asked-{os.getpid()}"
    start = _start(dict(found).get("ExecStart", ""), name)
    # With both, a command has a terminal where this one does, and else what it is piped to.
    made = ["systemd-run", "--quiet", "--pipe", "--pty", "--wait", "--collect", f"--unit={own}"]
    made += [f"--property={key}={value}" for key, value in taken]
    made += [
        f"--setenv={one}" for key, value in found if key == "Environment" for one in value.split()
    ]
    made += [f"--setenv={one}" for one in _settings(start, taken, own)]
    # It replaces `$NAME` in them, as in ExecStart=, from which the first three are.
    return [*made, "--", *start[:3], *(word.replace("$", "$$") for word in words)]


def _start(line: str, name: str) -> list[str]:
    """The words of ExecStart=.

    Raises:
        UsageError: they are not such as `diffuse service` writes.
    """
    try:
        start = shlex.split(line)
    except ValueError:
        start = []
    if start[1:3] != ["-m", "diffuse_core"]:
        raise UsageError(
            f"the unit of {name} was changed: its ExecStart= is not as `diffuse service` writes "
            "it; have it written anew, by `diffuse service install --force` with the command, and "
            f"keep changes apart, by `systemctl edit {name}`"
        )
    return start


def _settings(start: Sequence[str], taken: Sequence[tuple[str, str]], own: str) -> Iterator[str]:
    """What the service's command line says, for the environment of another command."""
    given = dict(pairwise(start)) | {a: b for a, equals, b in map(_parted, start) if equals}
    for flag in _SHARED:
        if flag in given:
            setting = flag[2:].replace("-", "_").upper()
            yield f"DIFFUSE_{setting}={given[flag].replace('$$', '$')}"
    for key, value in taken:
        if key == "LoadCredential":
            name = value.partition(":")[0]
            setting = name.replace("-", "_").upper()
            yield f"DIFFUSE_{setting}_FILE=/run/credentials/{own}.service/{name}"


def _parted(word: str) -> tuple[str, str, str]:
    return word.partition("=")


def _plain(value: str, name: str) -> str:
    known = {**_PLACES, "%N": name}
    return re.sub(r"%.", lambda match: known.get(match[0], match[0]), value)


def run_here(command: Sequence[str]) -> int:
    """Run a command with this terminal; its exit code.

    Raises:
        DiffuseError: it could not be run.
    """
    try:
        return subprocess.run(command, check=False).returncode  # noqa: S603 - as made above
    except OSError as error:
        raise DiffuseError(f"`{command[0]}` failed: {error}") from error
