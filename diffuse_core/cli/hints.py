"""Commands that messages name, with the options without which they would mean another node."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.configuration import SECRET_VARIABLE
from diffuse_core.settings import DEFAULT_NETWORK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.settings import NetworkOptions


def command_here(
    command: str, state: str | None = None, network: NetworkOptions | None = None
) -> str:
    """`diffuse COMMAND` for the node of a state directory, ready to be typed in this shell.

    Args:
        command: its name and its own options.
        state: the value of --state-dir; None where it was not given.
        network: the network that is meant, where that matters.
    """
    state = state or os.environ.get("DIFFUSE_STATE_DIR")
    placed = f" --state-dir {shlex.quote(state)}" if state else ""
    if network is None:
        return f"diffuse {command}{placed}"
    return f"diffuse {command}{placed}{_named(network)}{_keyed(network, os.environ)}"


def command_of_key(command: str, state: str | None, environ: Mapping[str, str]) -> str:
    """`diffuse COMMAND`, which reads a key of this process, for another shell.

    What a service of systemd keeps is for its own user only, whom `service ask` acts as.
    """
    place = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if not place:
        return command_here(command, state)
    return f"sudo diffuse service ask --name {shlex.quote(Path(place).name)} {command}"


def on_network(network: NetworkOptions) -> str:
    """The options, each after a space, that a command of another shell needs to be on it."""
    return _named(network) + _keyed(network, {})


def _named(network: NetworkOptions) -> str:
    return "" if network.name == DEFAULT_NETWORK else f" --network {shlex.quote(network.name)}"


def _keyed(network: NetworkOptions, environment: Mapping[str, str]) -> str:
    """The secret itself is no text for a screen."""
    needed = network.secret is not None and network.secret != environment.get(SECRET_VARIABLE)
    return " --network-key-file FILE" if needed else ""
