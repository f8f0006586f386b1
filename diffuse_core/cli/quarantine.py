"""Commands for nodes that audits found out: quarantine list, clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from diffuse_core.cli.common import print_json, stateful, table
from diffuse_core.domain.identity import SHORT_LENGTH

if TYPE_CHECKING:
    from diffuse_core.services.quarantine import QuarantineBook


@click.group()
def quarantine() -> None:
    """Show and forget the nodes that are not used from here because of audits.

    A node gets there when `query --audit` or `chat --audit` found that what it computed did not
    agree with two others. It is used no more for a day by commands, and by the node, with this
    state directory. Nobody else is told.

    \b
    diffuse quarantine list
    diffuse quarantine clear
    """


@quarantine.command("list")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@stateful
def list_(*, as_json: bool, state_dir: str | None) -> None:
    """Show them, and those that are doubtful: used only where no other will do.

    \b
    diffuse quarantine list
    diffuse quarantine list --json
    """
    from diffuse_core.cli.quarantine_text import sign

    book, now = quarantine_book(state_dir), _now()
    found = book.standings()
    until = {entry.node: entry.until for entry in book.entries()}
    left = {node: (until[node] - now) / 3600 for node in found}
    if as_json:
        nodes = [
            {
                "node": node,
                "state": state,
                "until": round(until[node], 3),
                "hours_left": round(left[node], 2),
            }
            for node, state in found.items()
        ]
        print_json({"nodes": nodes})
    elif not found:
        click.echo("nobody is in quarantine")
    else:
        lines = [
            (node[:SHORT_LENGTH], sign(state), f"{left[node]:.1f} h left")
            for node, state in found.items()
        ]
        click.echo(table(lines))


@quarantine.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@stateful
def clear(*, as_json: bool, state_dir: str | None) -> None:
    """Use all of them again.

    \b
    diffuse quarantine clear
    diffuse quarantine clear --state-dir ~/second-node --json
    """
    book = quarantine_book(state_dir)
    count = len({entry.node for entry in book.entries()})
    book.clear()
    if as_json:
        print_json({"forgotten": count})
    else:
        click.echo(f"forgot {count} node{'' if count == 1 else 's'}")


def _now() -> float:
    from diffuse_core.adapters.system_clock import SystemClock

    return SystemClock().wall()


def quarantine_book(state: str | None) -> QuarantineBook:
    """The list that is kept in a state directory: the one given, or the usual one."""
    from diffuse_core.adapters.file_storage import FileStorage
    from diffuse_core.adapters.system_clock import SystemClock
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.settings import state_dir

    return QuarantineBook(FileStorage(state_dir(state)), SystemClock())
