"""`diffuse help`: guides, which lie as Markdown beside the commands, and the help of commands."""

from __future__ import annotations

import sys
from importlib import resources
from typing import TYPE_CHECKING

import click

from diffuse_core.configuration import nearest
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ORDER = (
    "app hosting models networks nat sampling private audits timings verify stopping identity "
    "settings scripts api operations architecture limits chaos security"
)
"""Of the topics; others follow by their names."""


@click.command("help")
@click.argument("topic", required=False)
def help_(topic: str | None) -> None:
    """Read a guide, or the help of a command; without TOPIC the guides are listed.

    On a terminal a guide opens in your pager (PAGER); q leaves it.

    \b
    diffuse help
    diffuse help hosting
    diffuse help hosting | grep -i memory
    """
    root = click.get_current_context().find_root()
    guides = topics()
    if topic is None:
        _list(guides)
    elif topic in guides:
        _show(guides[topic].read_text("utf-8"))
    elif isinstance(root.command, click.Group) and topic in root.command.commands:
        command = root.command.commands[topic]
        with click.Context(command, root, topic) as context:
            click.echo(command.get_help(context))
    else:
        raise UsageError(
            f"there is no guide and no command {topic!r}{nearest(topic, guides)}; "
            "`diffuse help` lists the guides"
        )


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
