"""Commands for the keys that a node and its owner are known by: identity show, export, import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diffuse_core.cli.common import print_json, stateful
from diffuse_core.cli.hints import command_here
from diffuse_core.domain.identity import node_text
from diffuse_core.errors import UsageError
from diffuse_core.settings import running_node, state_dir

if TYPE_CHECKING:
    from diffuse_core.domain.identity import Identity

STANDARD = "-"

owner_key = click.option(
    "--owner",
    is_flag=True,
    help="The owner's key, which commands a node, instead of the node's own.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="For scripts.")


@click.group()
def identity() -> None:
    """Show, back up and move the keys that a node and its owner are known by.

    A node's id is its key; who has a copy of the key is that node. Never run two nodes with one
    key at the same time: each looks like a liar to the other, and both lose their links. The
    owner's key commands the nodes of its state directory (stop, drain, the app).

    \b
    diffuse identity show
    diffuse identity export node.key                    # a backup; keep it secret
    diffuse identity export - | ssh HOST diffuse identity import -

    Files are readable by you alone and never overwritten. Exit codes: 0 good · 2 not possible as
    asked; the message says why, and what to do.
    """


@identity.command()
@as_json
@stateful
def show(as_json: bool, state_dir: str | None) -> None:
    """Show the node id and the owner id of a state directory; never a secret.

    It makes no keys: where there are none yet, it says so (with `--json`: null) and ends with 0.

    \b
    diffuse identity show
    diffuse identity show --state-dir ~/second-node --json
    """
    state, (node_name, owner_name) = _state(state_dir), _names()
    node, owner = _read(state, node_name), _read(state, owner_name)
    running = running_node(state)
    if as_json:
        print_json(
            {
                "state_dir": str(state),
                "node": None if node is None else node_text(node.node),
                "node_file": str(state / node_name),
                "owner": None if owner is None else node_text(owner.node),
                "owner_file": str(state / owner_name),
                "running": None
                if running is None
                else {"pid": running.pid, "address": running.address},
            }
        )
        return
    for word, found, name in (("node", node, node_name), ("owner", owner, owner_name)):
        text = "none yet" if found is None else f"{node_text(found.node)}  {state / name}"
        click.echo(f"{word:5}  {text}")
    if node is None:
        click.echo(
            f"no identity in {state} yet: the first `diffuse host`, `sentinel` or `node` there "
            f"makes one, or `{command_here('identity import FILE', state_dir)}` brings one"
        )
    elif running is None:
        click.echo("no node runs with it now")
    else:
        click.echo(f"a node runs with it now: pid {running.pid}, {running.address}")


@identity.command()
@click.argument("file", metavar="FILE")
@owner_key
@as_json
@stateful
def export(file: str, owner: bool, as_json: bool, state_dir: str | None) -> None:
    """Write a copy of the node's key to a new FILE, or to stdout with `-`.

    The copy is the node: who has it can pose as it. Keep it as you keep a password, and run no
    second node with it while this one runs.

    \b
    diffuse identity export node.key
    diffuse identity export --owner owner.key
    diffuse identity export - | gpg -c > node.key.gpg
    """
    if as_json and file == STANDARD:
        raise UsageError("stdout takes the key or --json, not both; give a FILE")
    state = _state(state_dir)
    name = _names()[owner]
    found = _read(state, name)
    if found is None:
        raise UsageError(
            f"there is no {name} in {state} to export; name another directory with --state-dir, "
            "or start a node there, which makes one"
        )
    if file == STANDARD:
        _write_out(found)
        return
    from diffuse_core.adapters.file_storage import export_key

    path = Path(file)
    if not export_key(path, found):
        click.echo(
            f"diffuse: others can read {path}, because its file system keeps no owners: keep that "
            "disk to yourself",
            err=True,
        )
    _tell("wrote the key of {} {} to {}", found, path, owner=owner, as_json=as_json)


@identity.command("import")
@click.argument("file", metavar="FILE")
@owner_key
@as_json
@stateful
def import_(file: str, owner: bool, as_json: bool, state_dir: str | None) -> None:
    """Take the key of FILE (stdin with `-`) for this state directory, where there is none yet.

    No node may run there. A key that is there is never overwritten: move it away first. Afterwards
    see to it that the key is in use in one place only. A FILE that others can read, as on a memory
    stick, is taken with a warning.

    \b
    diffuse identity import node.key
    diffuse identity import --owner owner.key --state-dir ~/second-node
    """
    from diffuse_core.adapters.file_storage import StateLock, install_identity

    state = _state(state_dir)
    piped = command_here(f"identity import -{' --owner' if owner else ''}", state_dir)
    found = _read_in() if file == STANDARD else _read_file(Path(file), piped)
    _check_other(state, found, owner=owner)
    with StateLock(state, f"stop it first: {command_here('stop', state_dir)}"):
        path = install_identity(state, _names()[owner], found)
    _tell("the key of {} {} is now in {}", found, path, owner=owner, as_json=as_json)


def _check_other(state: Path, found: Identity, *, owner: bool) -> None:
    """Refuse the key that the other file holds: a node cannot be its own owner."""
    mine, others = ("owner", "node") if owner else ("node", "owner")
    name = _names()[not owner]
    other = _read(state, name)
    if other is None or other.node != found.node:
        return
    export = f"diffuse identity export{' --owner' if owner else ''}"
    raise UsageError(
        f"this is the key of the {others}, which {state / name} holds already, and a node cannot "
        f"be its own owner; import a copy of the {mine}'s key, which `{export}` makes"
    )


def _state(given: str | None) -> Path:
    return state_dir(given)


def _names() -> tuple[str, str]:
    """The names of the node's and of the owner's key file."""
    from diffuse_core.finding import OWNER_KEY
    from diffuse_core.running import IDENTITY_KEY

    return IDENTITY_KEY, OWNER_KEY


def _tell(text: str, found: Identity, path: Path, *, owner: bool, as_json: bool) -> None:
    word, named = "owner" if owner else "node", node_text(found.node)
    if as_json:
        print_json({word: named, "file": str(path)})
    else:
        click.echo(text.format(word, named, path))


def _read(state: Path, name: str) -> Identity | None:
    from diffuse_core.adapters.file_storage import read_identity

    return read_identity(state, name)


def _read_file(path: Path, piped: str) -> Identity:
    from diffuse_core.adapters.file_storage import read_copy

    found, warning = read_copy(path, piped)
    if warning:
        click.echo(f"diffuse: {warning}", err=True)
    return found


def _read_in() -> Identity:
    from diffuse_core.adapters.file_storage import parse_copy
    from diffuse_core.adapters.file_storage.key_file import MAX_KEY_BYTES

    return parse_copy(sys.stdin.buffer.read(MAX_KEY_BYTES + 1), "stdin")


def _write_out(found: Identity) -> None:
    from diffuse_core.adapters.file_storage.key_file import key_bytes

    if sys.stdout.isatty():
        click.echo("diffuse: this is a secret; clear the screen afterwards", err=True)
    click.echo(key_bytes(found).decode(), nl=False)
