"""The command that a service is to run: checked as it would be, and never run."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffuse_core.errors import UsageError
from diffuse_core.own_paths import full_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

RUN_FOR_WEEKS = ("host", "sentinel", "node", "serve")
SECRETS = {
    "network_key": "put it into a file of mode 0600 and give --network-key-file FILE",
    "api_key": "put it into a file of mode 0600 and give that",
}
"""Options whose values everybody on a machine can read in a unit, and what to do instead."""
FILES = ("--network-key-file", "--api-key-file", "--log-file", "--state-dir")
MAYBE_FILES = ("--model", "--allow")
"""Names of files where they look like those."""


@dataclass(frozen=True)
class Inner:
    """A sound command: its words, with absolute paths, and what its options came to."""

    command: str
    words: tuple[str, ...]
    given: Mapping[str, Any]

    @property
    def drain_s(self) -> int:
        """Seconds that sessions may take once it is asked to end."""
        from diffuse_core.node_end import usual_patience

        return math.ceil(usual_patience(self.given.get("drain_timeout")))

    def path(self, option: str) -> Path | None:
        """The file or directory that an option names."""
        found = self.given.get(option)
        return None if not found else Path(str(found)).absolute()


def read_inner(commands: click.Group, words: Sequence[str]) -> Inner:
    """Check a command line as the command itself would.

    Raises:
        UsageError: there is none, it is not one that runs for weeks, or it has a secret in it.
        click.UsageError: its options are wrong; told as the command would.
    """
    if not words:
        raise UsageError(
            "which command is the service to run? E.g.: diffuse service print host --model demo"
        )
    name, *options = words
    command = commands.commands.get(name) if name in RUN_FOR_WEEKS else None
    if command is None:
        known = ", ".join(name for name in RUN_FOR_WEEKS if name in commands.commands)
        raise UsageError(f"{name!r} does not run as a service; these do: {known}")
    options = [*_absolute(options)]
    for word in words:
        if any(not character.isprintable() for character in word):
            raise UsageError("a unit cannot hold line breaks and the like; leave them out")
    with command.make_context(f"diffuse {name}", list(options)) as context:
        given = dict(context.params)
    for option, instead in SECRETS.items():
        if given.get(option):
            flag = "--" + option.replace("_", "-")
            raise UsageError(f"everybody may read a unit, with the secret of {flag}: {instead}")
    if given.get("exit_with_parent"):
        raise UsageError("a service has no parent to exit with; leave that option out")
    _check_values(given)
    return Inner(name, (name, *options), given)


def _check_values(given: Mapping[str, Any]) -> None:
    """What the command itself looks at only once it runs."""
    from diffuse_core.cli.operated import metrics_address
    from diffuse_core.domain.sizes import parse_size
    from diffuse_core.settings import DEFAULT_PORT, parse_address, parse_bootstrap, parse_public

    metrics_address(given.get("metrics"))
    if given.get("memory"):
        parse_size(given["memory"])
    if given.get("listen"):
        parse_address(given["listen"], DEFAULT_PORT)
    parse_bootstrap(given.get("bootstrap") or ())
    parse_public(given.get("public_addr") or ())


def _absolute(options: Sequence[str]) -> list[str]:
    """The options with paths from the root on: a service runs in another directory."""
    made, before = [], ""
    for word in options:
        flag, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            made.append(f"{flag}={_path(flag, value)}")
        else:
            made.append(_path(before, word))
        before = word
    return made


def _path(option: str, value: str) -> str:
    plain = value.endswith(".gguf") or value.startswith(("~", "."))
    maybe = plain or (os.sep in value and full_path(value).exists())
    if option in FILES or (option in MAYBE_FILES and maybe):
        return str(full_path(value))
    return value
