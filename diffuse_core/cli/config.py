"""`diffuse config`: the settings of all commands, and where each comes from."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import CompletionItem

from diffuse_core.cli.common import print_json, table
from diffuse_core.cli.config_rows import ALL, Row, check_rows, rows_of, tables, unknown_variables
from diffuse_core.cli.layers import checked_config, commands_below
from diffuse_core.cli.root import complete_command
from diffuse_core.config_file import ConfigFile, config_path
from diffuse_core.configuration import Sources, nearest
from diffuse_core.errors import UsageError


@click.group()
def config() -> None:
    """Show and check settings: options that are set once, in a file or the environment.

    A flag counts most, then the environment, then the file, then the default. `--memory` of
    `diffuse host` is DIFFUSE_HOST_MEMORY or DIFFUSE_MEMORY in the environment, and in the file
    `memory` in the table [host] or above all tables. More: `diffuse help settings`.

    \b
    diffuse config init
    diffuse config show host
    """


def _root() -> click.Command:
    return click.get_current_context().find_root().command


def _complete(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Commands as they are called, and what else has settings."""
    found = complete_command(context, param, incomplete)
    others = () if context.params.get(param.name or "") else (ALL, "app")
    return found + [CompletionItem(name) for name in others if name.startswith(incomplete)]


@config.command()
@click.argument("command", nargs=-1, shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="For scripts: all of every command.")
def show(command: tuple[str, ...], as_json: bool) -> None:
    """Show settings, their values, and where each comes from.

    Without COMMAND those that are set, for every command that they count for; with one (`app` is
    the terminal app, `all` what is no command's own) all that it has, with the defaults. Secrets
    are not shown.

    \b
    diffuse config show
    diffuse config show host
    diffuse config show identity export
    diffuse config show --json

    Defaults: no COMMAND, a table for people.
    """
    file = checked_config(_root())
    sources = Sources(os.environ, file)
    known = tables(_root())
    wanted = " ".join(command)
    names = {*known, *(" ".join(place) for place, _ in commands_below(_root()))}
    if wanted not in names:
        raise UsageError(f"there is no command {wanted!r}{nearest(wanted, names)}")
    rows = [
        row
        for name, (place, options) in known.items()
        if f"{name} ".startswith(f"{wanted} ".lstrip())
        for row in rows_of(place, options, sources)
    ]
    if as_json:
        print_json({**_told(file), "settings": [asdict(row) for row in rows]})
        return
    click.echo(_where(file))
    if not wanted:
        set_ones = [row for row in rows if row.source != "default"]
        click.echo(_text(set_ones) if set_ones else "nothing is set; all defaults count")
        click.echo("`diffuse config show COMMAND` tells all of one, with the defaults")
    else:
        click.echo(_text(rows) if rows else f"`diffuse {wanted}` has no settings")


def _told(file: ConfigFile) -> dict[str, Any]:
    return {"file": str(file.path), "exists": file.there}


def _where(file: ConfigFile) -> str:
    there = "" if file.there else " (not there; `diffuse config init` makes one)"
    return f"file: {file.path}{there}"


def _text(rows: list[Row]) -> str:
    """A table in which what several commands have in common is told once."""
    whose: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        whose.setdefault((row.option, _value(row), row.origin), []).append(row.command)
    head = ("OPTION", "VALUE", "FROM", "OF")
    return table([head, *((*told, _few(commands)) for told, commands in whose.items())])


def _few(commands: list[str]) -> str:
    more = f" and {len(commands) - 3} more" if len(commands) > 4 else ""
    return ", ".join(commands[:3] if more else commands) + more


def _value(row: Row) -> str:
    if row.value is None or row.value == []:
        return "-"
    if isinstance(row.value, bool):
        return "true" if row.value else "false"
    return ", ".join(row.value) if isinstance(row.value, list) else str(row.value)


@config.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def path(as_json: bool) -> None:
    """Print where the file of settings is, or would be.

    \b
    diffuse config path
    $EDITOR "$(diffuse config path)"

    Default: config.toml in the config directory of this user; DIFFUSE_CONFIG names another.
    """
    found = config_path()
    if as_json:
        print_json({"file": str(found), "exists": found.exists()})
    else:
        click.echo(found)


@config.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def check(as_json: bool) -> None:
    """Check every setting of every command, as the flags would be checked.

    Ends with 0 when all can be used, else with 2. Variables that look like settings and are none
    are told as well.

    \b
    diffuse config check
    diffuse config check --json

    Defaults: text for people.
    """
    root = _root()
    file = checked_config(root)
    wrong = check_rows(root, Sources(os.environ, file))
    strange = unknown_variables(root, os.environ)
    if as_json:
        print_json({**_told(file), "problems": wrong, "unknown_variables": strange})
    else:
        click.echo(_where(file))
        for line in (*wrong, *(f"{name} is no setting{hint}" for name, hint in strange.items())):
            click.echo(line)
        click.echo("some cannot be used as they are" if wrong else "all can be used")
    if wrong:
        raise click.exceptions.Exit(2)


@config.command()
def init() -> None:
    """Write a file of settings with all lines commented out, to be filled in.

    One that is there is never overwritten. The new one is readable by you alone.

    \b
    diffuse config init
    DIFFUSE_CONFIG=~/other.toml diffuse config init

    Default: the place that `diffuse config path` tells.
    """
    from diffuse_core.cli.config_example import EXAMPLE

    found = config_path()
    try:
        found.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = os.open(found, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(
            f"{found} is there already, and is not overwritten; edit it, or move it away"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot write {found}: {(error.strerror or '').lower()}; mend that, or name another "
            "file in DIFFUSE_CONFIG"
        ) from error
    with os.fdopen(made, "w", encoding="utf-8") as file:
        file.write(EXAMPLE)
    click.echo(f"wrote {found}; nothing is set in it yet")
