"""The form of log lines before a command has begun: what is said of wrong options has it, too."""

from __future__ import annotations

import contextlib
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diffuse_core.cli.layers import places_of, setting_of
from diffuse_core.config_file import ConfigFile, read_config
from diffuse_core.configuration import Sources
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffuse_core.configuration import Value

FLAG = "--log-format"
NAME = "log_format"


def wants_json(root: click.Command, arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether a command line, which may be wrong, asks for lines of JSON.

    Only of commands that have the option. Nothing is refused here.
    """
    command, place = root, list[str]()
    for word in arguments:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        command = command.commands[word]
        place.append(word)
    option = next((one for one in command.params if one.name == NAME), None)
    if option is None:
        return False
    joined = [word.partition("=")[2] for word in arguments if word.startswith(f"{FLAG}=")]
    apart = [after for word, after in pairwise(arguments) if word == FLAG]
    if joined or apart:
        return "json" in (*joined, *apart)
    setting = setting_of(option)
    if setting is None:
        return False
    places = places_of(tuple(place), setting.key)
    with contextlib.suppress(DiffuseError):
        return _is_json(Sources(environ, _config(environ)).find(setting, places))
    return False


def _config(environ: Mapping[str, str]) -> ConfigFile:
    """The file; what is wrong with it is for the command to tell."""
    try:
        return read_config(environ)
    except DiffuseError:
        return ConfigFile(Path(os.devnull))


def _is_json(found: Value | None) -> bool:
    return found is not None and found.given == "json"
