"""The root of all commands: its help lists them by what they are for."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from diffuse_core.cli.layers import LayeredGroup, commands_below
from diffuse_core.configuration import nearest
from diffuse_core.errors import DiffuseError

SECTIONS = {
    "Be a part of the network": "host sentinel node service drain stop",
    "Use a model": "query chat serve demo",
    "Look and measure": "status models plan verify bench doctor",
    "Manage": "identity quarantine config service completions help",
}
"""Commands by what they are for, in the order of the help."""
OTHERS = "Other commands"
PATHS = {"FILE": "file", "ID|FILE": "file", "DIR": "dir"}
"""What a shell completes where the help names this."""
MODELS = ("M", "MODEL", "PATH|ORG/NAME|demo")
"""What the help names a model."""
MAY_CHOOSE = ("host", "plan")
"""Commands that take `auto` for a model."""


class RootGroup(LayeredGroup):
    """Lists commands in sections."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; every version of it names the nearest command, as only new ones do."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args and "id you mean" not in error.format_message():
                hint = nearest(args[0], self.commands).replace("; d", " D")
                error.message += hint  # type: ignore[misc]
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help."""
        named = [name for names in SECTIONS.values() for name in names.split()]
        return sorted(
            self.commands, key=lambda name: named.index(name) if name in named else len(named)
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its commands."""
        section_of = {name: title for title, names in SECTIONS.items() for name in names.split()}
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS, OTHERS)}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            if not command.hidden:
                line = command.get_short_help_str(2 * formatter.width)
                found[section_of.get(name, OTHERS)].append((name, line))
        for title, lines in found.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class _PathText(click.types.StringParamType):
    """A text that a shell completes with the names of files or directories."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell, which knows paths best."""
        return [CompletionItem(incomplete, type=self._kind)]


class _ModelText(_PathText):
    """The name of a model: also that of one which is here, without looking at the network."""

    def __init__(self) -> None:
        super().__init__("file")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that there are without the network, and files."""
        names = ["demo", *(["auto"] if ctx.command.name in MAY_CHOOSE else []), *_fetched()]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found + super().shell_complete(ctx, param, incomplete)


def _fetched() -> list[str]:
    """Models of the hub that were fetched; what else lies there is none, whatever its name."""
    from diffuse_core.adapters.models.hub_name import parse_hub_name
    from diffuse_core.settings import cache_dir

    try:
        names = sorted(one.name.replace("--", "/") for one in (cache_dir() / "hub").iterdir())
    except (DiffuseError, OSError):
        return []
    return [name for name in names if parse_hub_name(name) is not None]


def complete_command(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of commands, for an argument whose words name one: `help service print`."""
    command: click.Command | None = context.find_root().command
    for name in context.params.get(param.name or "") or ():
        command = command.commands.get(name) if isinstance(command, click.Group) else None
    names = command.commands if isinstance(command, click.Group) else ()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def name_numbers(root: click.Command) -> None:
    """Call numbers so, in help and errors: click says `FLOAT RANGE`, `not a valid float range`."""
    for _, command in commands_below(root):
        for param in command.params:
            if isinstance(param.type, click.FloatRange):
                param.type.name = "number"
            elif isinstance(param.type, click.IntRange):
                param.type.name = "integer"


def complete_paths(root: click.Command) -> None:
    """Let shells complete paths where options and arguments take some."""
    for _, command in commands_below(root):
        for param in command.params:
            if type(param.type) is not click.types.StringParamType:
                continue
            if _metavar(param) in MODELS:
                param.type = _ModelText()
            elif (kind := PATHS.get(_metavar(param))) is not None:
                param.type = _PathText(kind)


def _metavar(param: click.Parameter) -> str:
    named: Any = param.metavar or (
        (param.name or "").upper() if isinstance(param, click.Argument) else ""
    )
    return str(named)
