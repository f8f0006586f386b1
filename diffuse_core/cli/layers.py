"""Settings of click commands: flags, else the environment, else `config.toml`, else defaults.

What click calls a default map is asked for every option that no flag gave. So values from anywhere
go through the option's own checks, and commands need not know where a value came from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diffuse_core.config_file import read_config
from diffuse_core.configuration import (
    APP_SETTINGS,
    CACHE_DIR,
    DEMO_SETTINGS,
    RIVALS,
    Setting,
    Sources,
    Value,
    outdone,
    problems,
)
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.config_file import ConfigFile
    from diffuse_core.configuration import Kind, Place

ONE_CALL = frozenset(
    {"all", "ask", "check", "compare", "dry-run", "force", "help", "install", "json", "now"}
    | {"owner", "print-key", "prompt", "stdin", "uninstall", "version", "yes"}
)
"""Options that say what to do this once: no file and no variable gives them."""
OWN_ONLY = {
    "demo": frozenset({"bootstrap", "allow", "state-dir"}),
    "serve": frozenset({"model"}),
}
"""Of a network of its own: what is set for all commands is about another one. And what is asked
by default is not all that is served."""
READS_ALSO = {"plan": ("host",), "doctor": ("host",)}
"""These tell what a host here would take, or meet, so what is set for that counts."""
TELL_WRONG = frozenset({"doctor"})
"""These tell what cannot be used of what is set, and so are not ended by it."""


def setting_of(option: click.Parameter) -> Setting | None:
    """An option as file and environment know it; None where only a flag gives it."""
    if not isinstance(option, click.Option) or option.hidden or option.is_eager or option.count:
        return None
    key = long_name(option)
    if not key or key in ONE_CALL:
        return None
    inverse = next((name[2:] for name in option.secondary_opts if name[:2] == "--"), None)
    return Setting(key, _kind(option), option.multiple, inverse)


def long_name(option: click.Parameter) -> str:
    """The name of an option without dashes, as `max-tokens`; empty where it has no long one."""
    return next((name[2:] for name in option.opts if name.startswith("--")), "")


def _name_of(option: click.Parameter) -> tuple[str, ...]:
    name = long_name(option)
    return (name,) if name else ()


def _kind(option: click.Option) -> Kind:
    if option.is_flag:
        return "switch"
    if isinstance(option.type, click.types.IntParamType):
        return "whole"
    return "number" if isinstance(option.type, click.types.FloatParamType) else "text"


def places_of(place: Place, key: str) -> list[Place]:
    """Where an option of a command is looked for, the command's own place first."""
    places = [place[:size] for size in range(len(place), 0, -1)]
    places += [(name,) for name in READS_ALSO.get(place[0], ())] if place else []
    return places if place and key in OWN_ONLY.get(place[0], ()) else [*places, ()]


def commands_below(command: click.Command, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every command of a tree with its place; the root's is ()."""
    yield place, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands_below(below, (*place, name))


def switch_both_ways(root: click.Command) -> None:
    """Let a flag switch off what the file switches on: `--timings` gets its `--no-timings`."""
    for _, command in commands_below(root):
        taken = {name for option in command.params for name in option.opts}
        for option in command.params:
            setting = setting_of(option)
            if setting is None or setting.kind != "switch" or option.secondary_opts:
                continue
            key = setting.key
            other = f"--{key.removeprefix('no-')}" if key.startswith("no-") else f"--no-{key}"
            if other not in taken:
                option.secondary_opts = [other]


def known_settings(root: click.Command) -> dict[Place, dict[str, Setting | None]]:
    """What may stand in each table: options by every name of theirs, None for those of a call."""
    known: dict[Place, dict[str, Setting | None]] = {}
    for place, command in commands_below(root):
        for option in command.params:
            setting = setting_of(option)
            names = setting.names if setting is not None else _name_of(option)
            for depth in range(len(place) + 1):
                table = known.setdefault(place[:depth], {})
                for name in names:
                    table[name] = setting or table.get(name)
    known[()][CACHE_DIR.key] = CACHE_DIR
    known["app",] = {name: one for one in APP_SETTINGS for name in one.names}
    for setting in (*APP_SETTINGS, *DEMO_SETTINGS):
        for name in setting.names:
            known[()].setdefault(name, setting)
    return known


def checked_config(root: click.Command) -> ConfigFile:
    """The file, in which nothing stands that means nothing.

    Raises:
        UsageError: it cannot be used; the message names the first thing that is wrong.
    """
    file = read_config()
    if file.content:
        for problem in problems(file, known_settings(root)):
            raise UsageError(problem)
    return file


class Layers(Mapping[str, Any]):
    """The default map of a tree of commands; what it holds is looked up when it is asked for.

    Names are those of commands below, which have maps of their own, and of options.
    """

    def __init__(
        self, root: click.Command, command: click.Command, place: Place = (), top: Any = None
    ) -> None:
        self._root, self._command, self._place = root, command, place
        self._top: Layers = self if top is None else top
        self._sources: Sources | None = None
        self._values: dict[str, tuple[Setting, Value | None]] = {}
        self.used: dict[str, tuple[Setting, Value]] = {}
        """What options were given, by their names in the program; kept in the topmost map."""

    @property
    def sources(self) -> Sources:
        """Read once for a command, and only when an option is looked for."""
        top = self._top
        if top._sources is None:
            top._sources = Sources(os.environ, checked_config(self._root))
        return top._sources

    def __getitem__(self, name: str) -> Any:
        context = click.get_current_context(silent=True)
        # Help tells the defaults of the program, and needs no file that can be read.
        if context is None or context.resilient_parsing:
            raise KeyError(name)
        # Options of a group may be called as commands of it, as `help` is.
        if isinstance(self._command, click.Group) and context.invoked_subcommand == name:
            below = self._command.commands[name]
            return Layers(self._root, below, (*self._place, name), self._top)
        found = self._value(name)
        if found is None or self._outdone(context, *found):
            raise KeyError(name)
        self._top.used[name] = found
        return found[1].given

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1  # Not false: click would look no further.

    def _value(self, name: str) -> tuple[Setting, Value] | None:
        if name not in self._values:
            option = next((one for one in self._command.params if one.name == name), None)
            setting = None if option is None else setting_of(option)
            if option is None or setting is None:
                return None
            self._values[name] = setting, self._usable(option, setting)
        setting, value = self._values[name]
        return None if value is None else (setting, value)

    def _usable(self, option: click.Parameter, setting: Setting) -> Value | None:
        """What is set for an option.

        Raises:
            UsageError: it cannot be used, and the command is none that tells of it itself.
        """
        told = not TELL_WRONG.isdisjoint(self._place[:1])
        try:
            value = self.sources.find(setting, places_of(self._place, setting.key))
            if told and value is not None:
                option.process_value(click.get_current_context(), value.given)
        except (UsageError, click.BadParameter):
            if not told:
                raise
            return None
        return value

    def _outdone(self, context: click.Context, setting: Setting, value: Value) -> bool:
        """Whether an option that excludes this one is given nearer to the command line."""
        for option in self._command.params:
            if long_name(option) not in RIVALS.get(setting.key, ()):
                continue
            # Options of the command line are read before any others.
            if context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
                return context.params.get(option.name) is not False
            rival = self._value(option.name)
            found = {setting.key: value, long_name(option): None if rival is None else rival[1]}
            if outdone(setting.key, found):
                return True
        return False

    def told(self, error: Exception) -> str:
        """Where the values come from that an error is about, to be added to its message."""
        param = getattr(error, "param", None)
        told = [
            f"--{setting.key} comes from {value.origin}: {value.mend}, or give the option"
            for name, (setting, value) in self.used.items()
            if (param.name == name if param is not None else _names(str(error), setting, value))
        ]
        return f" ({'; '.join(told)})" if told else ""


def _names(message: str, setting: Setting, value: Value) -> bool:
    """Whether a message is about an option: it names it, or quotes what was given."""
    if re.search(rf"--{re.escape(setting.key)}(?![\w-])", message):
        return True
    given = value.given if isinstance(value.given, tuple) else (value.given,)
    return any(isinstance(one, str) and repr(one) in message for one in given)


class LayeredGroup(click.Group):
    """The root of commands whose options also come from the environment and the file."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """As click does, with the layers below the flags."""
        if parent is None:
            extra.setdefault("default_map", Layers(self, self))
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error about a value that no flag gave says where it is from."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.message += _told(ctx, error)  # type: ignore[misc]
            raise
        except UsageError as error:
            told = _told(ctx, error)
            if not told:
                raise
            raise UsageError(f"{error}{told}") from error


def _told(ctx: click.Context, error: Exception) -> str:
    layers: Any = ctx.default_map
    return layers.told(error) if isinstance(layers, Layers) else ""


def from_flag(name: str) -> bool:
    """Whether a flag gave the option of the command that runs now."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.get_parameter_source(name)
    return found is ParameterSource.COMMANDLINE
