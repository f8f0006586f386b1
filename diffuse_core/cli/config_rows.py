"""What `diffuse config` tells: settings of commands, found and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.layers import commands_below, known_settings, places_of, setting_of
from diffuse_core.configuration import (
    APP_SETTINGS,
    CACHE_DIR,
    nearest,
    of_kubernetes,
    outdone,
    variable,
)
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError, UsageError
from diffuse_core.settings import check_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from diffuse_core.configuration import Place, Setting, Sources

MASK = "********"
OTHER_VARIABLES = frozenset({"DIFFUSE_CONFIG", "DIFFUSE_ONLY_FLAGS", "DIFFUSE_API_KEY"})
ALL = "all"
"""The place of what is no command's own."""
Options = list[tuple["Setting", "click.Option | None"]]


@dataclass(frozen=True)
class Row:
    """A setting of a command; `variable` is the one that is for this command alone."""

    command: str
    option: str
    value: str | bool | int | float | list[str] | None
    source: str
    origin: str
    variable: str


def tables(root: click.Command) -> dict[str, tuple[Place, Options]]:
    """Of every command, by its name, its place and its settings."""
    found: dict[str, tuple[Place, Options]] = {}
    for place, command in commands_below(root):
        options: Options = [
            (setting, option)
            for option in command.params
            if isinstance(option, click.Option) and (setting := setting_of(option)) is not None
        ]
        if options:
            found[" ".join(place)] = place, options
    found[ALL] = (), [(CACHE_DIR, None)]
    found["app"] = ("app",), [(setting, None) for setting in APP_SETTINGS]
    return found


def rows_of(place: Place, options: Options, sources: Sources) -> Iterator[Row]:
    """The settings of a command.

    Raises:
        UsageError: one is of another kind than its option.
    """
    found = {one.key: sources.find(one, places_of(place, one.key)) for one, _ in options}
    for setting, option in options:
        value = found[setting.key]
        own = variable(place, setting.key)
        name = " ".join(place) or ALL
        if value is None or outdone(setting.key, found):
            yield Row(name, setting.key, _default(option), "default", "default", own)
            continue
        given: Any = value.given
        if setting.secret:
            given = MASK
        elif isinstance(given, tuple):
            given = [clean(one) for one in given]
        elif isinstance(given, str):
            given = clean(given)
        yield Row(name, setting.key, given, value.source, value.origin, own)


def _default(option: click.Option | None) -> Any:
    """As click gives it where nothing is set; None where the command finds it by itself."""
    if option is None:
        return None
    told: Any = option.get_default(click.Context(click.Command("none")))
    if isinstance(told, tuple | list):
        return [str(one) for one in told]
    return told if isinstance(told, str | bool | int | float) else None


def check_rows(root: click.Command, sources: Sources) -> list[str]:
    """What cannot be used of what is set, each once."""
    return list(dict.fromkeys(_wrong(root, sources)))


def _wrong(root: click.Command, sources: Sources) -> Iterator[str]:
    for place, own in ((), CACHE_DIR), *((("app",), one) for one in APP_SETTINGS):
        try:
            value = sources.find(own, places_of(place, own.key))
            if value is not None:
                check_value(own, value)
        except UsageError as error:
            yield str(error)
    for place, command in commands_below(root):
        with click.Context(command, info_name=" ".join(place)) as context:
            for option in command.params:
                yield from _wrong_option(context, option, place, sources)


def _wrong_option(
    context: click.Context, option: click.Parameter, place: Place, sources: Sources
) -> Iterator[str]:
    setting = setting_of(option)
    if setting is None:
        return
    try:
        value = sources.find(setting, places_of(place, setting.key))
    except UsageError as error:
        yield str(error)
        return
    if value is None:
        return
    try:
        option.process_value(context, value.given)
    except click.BadParameter as error:
        yield f"{value.origin}: {clean(error.message)}"
    except DiffuseError as error:
        yield f"{value.origin}: {error}"


def unknown_variables(root: click.Command, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables with our prefix that are no settings, with the nearest that is."""
    known = {
        variable(place, name)
        for place, settings in known_settings(root).items()
        for name, setting in settings.items()
        if setting is not None
    }
    strange = [
        name
        for name, text in sorted(environ.items())
        if name.startswith("DIFFUSE_")
        and name not in known | OTHER_VARIABLES
        and not of_kubernetes(name, text)
    ]
    return {clean(name): nearest(name, known) for name in strange}
