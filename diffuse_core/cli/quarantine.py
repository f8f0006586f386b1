"""Commands for nodes that audits found out: quarantine list, clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from diffuse_core.cli.common import print_json, table
from diffuse_core.domain.identity import short_text

if TYPE_CHECKING:
    from diffuse_core.services.quarantine import QuarantineBook


@click.group()
def quarantine() -> None:
    """Show and forget the nodes that this machine does not use because of audits.

    A node gets there when `query --audit`, or an answer in the app, found that what it computed
    did not agree with two others. It is used no more for a day. Nobody else is told.

    \b
    diffuse quarantine list
    diffuse quarantine clear
    """


@quarantine.command("list")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def list_(*, as_json: bool) -> None:
    """Show them, and those that are doubtful: used only where no other will do."""
    book = _book()
    now = _now()
    barred = book.barred()
    rows = {entry.node: (entry.id in barred, entry.until) for entry in book.entries()}
    left = {node: (until - now) / 3600 for node, (_, until) in rows.items()}
    if as_json:
        nodes = [
            {"node": node, "state": _state(out), "hours_left": round(left[node], 2)}
            for node, (out, _) in rows.items()
        ]
        print_json({"nodes": nodes})
    elif not rows:
        click.echo("nobody is in quarantine")
    else:
        lines = [
            (short_text(bytes.fromhex(node)), _state(out), f"{left[node]:.1f} h left")
            for node, (out, _) in rows.items()
        ]
        click.echo(table(lines))


@quarantine.command()
def clear() -> None:
    """Use all of them again."""
    book = _book()
    count = len({entry.node for entry in book.entries()})
    book.clear()
    click.echo(f"forgot {count} node{'' if count == 1 else 's'}")


def _state(barred: bool) -> str:
    return "quarantined" if barred else "doubtful"


def _now() -> float:
    from diffuse_core.adapters.system_clock import SystemClock

    return SystemClock().wall()


def _book() -> QuarantineBook:
    from diffuse_core.adapters.file_storage import FileStorage
    from diffuse_core.adapters.system_clock import SystemClock
    from diffuse_core.services.quarantine import QuarantineBook
    from diffuse_core.settings import cache_dir

    return QuarantineBook(FileStorage(cache_dir() / "bundles"), SystemClock())
