"""`diffuse help`: guides, which lie as Markdown beside the commands, and the help of commands."""

from __future__ import annotations

import sys
from importlib import resources
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from diffuse_core.cli.layers import commands_below
from diffuse_core.cli.root import complete_command
from diffuse_core.configuration import nearest
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ORDER = (
    "app hosting models networks nat sampling private audits timings verify stopping identity "
    "settings scripts api operations architecture limits security"
)
"""Of the topics; others follow by their names."""


def _complete(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Guides, and commands as they are called."""
    guides = () if context.params.get("topic") else topics()
    found = [CompletionItem(name) for name in guides if name.startswith(incomplete)]
    return found + complete_command(context, param, incomplete)


@click.command("help")
@click.argument("topic", nargs=-1, shell_complete=_complete)
def help_(topic: tuple[str, ...]) -> None:
    """Read a guide, or the help of a command; without TOPIC the guides are listed.

    On a terminal a guide opens in your pager (PAGER); q leaves it.

    \b
    diffuse help
    diffuse help hosting
    diffuse help hosting | grep -i memory
    diffuse help config show
    """
    root = click.get_current_context().find_root()
    guides = topics()
    wanted = " ".join(topic)
    if not wanted:
        _list(guides)
    elif wanted in guides:
        _show(guides[wanted].read_text("utf-8"))
    elif not _help(root, topic):
        commands = (" ".join(place) for place, _ in commands_below(root.command) if place)
        raise UsageError(
            f"there is no guide and no command {wanted!r}{nearest(wanted, (*commands, *guides))}; "
            "`diffuse help` lists the guides"
        )


def _help(context: click.Context, names: tuple[str, ...]) -> bool:
    """Print the help of a command, or of one below it; false where there is none."""
    for name in names:
        command = context.command
        if not isinstance(command, click.Group) or name not in command.commands:
            return False
        context = click.Context(command.commands[name], context, name)
    click.echo(context.get_help())
    return True


def topics() -> dict[str, Traversable]:
    """The guides by their names, in the order of the list."""
    place = resources.files("diffuse_core.cli") / "guides"
    found = {file.name.removesuffix(".md"): file for file in place.iterdir()}
    order = {name: at for at, name in enumerate(ORDER.split())}
    return {name: found[name] for name in sorted(found, key=lambda n: (order.get(n, 99), n))}


def title(guide: Traversable) -> str:
    """A guide's first line."""
    return guide.read_text("utf-8").partition("\n")[0].removeprefix("#").strip()


def _list(guides: dict[str, Traversable]) -> None:
    click.echo("Guides, read with `diffuse help TOPIC`:\n")
    for name, guide in guides.items():
        click.echo(f"  {name:14}{title(guide)}")
    click.echo("\nOf a command: `diffuse COMMAND --help`. All commands: `diffuse --help`.")


def _show(text: str) -> None:
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)
