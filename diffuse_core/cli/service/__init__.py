"""The command that makes a node a service of the machine: service."""

from __future__ import annotations

import getpass
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import click

from diffuse_core.cli.common import adding, print_json, table
from diffuse_core.cli.service.asked import run_here, run_words
from diffuse_core.cli.service.here import check_here
from diffuse_core.cli.service.inner import read_inner
from diffuse_core.cli.service.installed import (
    forget_failure,
    path_of,
    read_unit,
    remove_unit,
    require_systemd,
    run_all,
    shown,
    systemctl,
    write_unit,
)
from diffuse_core.cli.service.unit import Scope, Unit, check_name, check_unit, words_of
from diffuse_core.errors import Unreachable, UsageError

KINDS = {
    "container": "Containerfile",
    "compose": "compose.yaml",
    "grafana": "grafana.json",
    "prometheus": "prometheus.yml",
    "alerts": "alerts.yml",
}
USUAL = "diffuse-host"
"""The unit that is meant where none is named."""
_INNER: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}

# Eager: they say what to do this once, so no file and no variable gives them.
scoped = adding(
    click.option(
        "--user", "scope", flag_value="user", is_eager=True, help="A service of yours alone."
    ),
    click.option(
        "--system", "scope", flag_value="system", is_eager=True, help="A service of the machine."
    ),
)
named = click.option(
    "--name",
    metavar="NAME",
    is_eager=True,
    help="Of the unit. Default: diffuse-COMMAND, as diffuse-host.",
)
forced = click.option(
    "--force", is_flag=True, is_eager=True, help="Also where somebody else wrote the unit."
)
at_once = click.option(
    "--now", is_flag=True, is_eager=True, help="Run the commands that are printed otherwise."
)
made = adding(
    scoped,
    named,
    click.option(
        "--run-as",
        metavar="USER",
        is_eager=True,
        help="Run a service of the machine as USER. Default: a user that systemd makes up, which "
        "can read what everybody can.",
    ),
)
inner_words = click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [OPTIONS]..."
)


@click.group()
def service() -> None:
    """Run a host, sentinel, node or API server as a service of this machine.

    Options of the service come before the command that it runs, whose options follow it. Nothing
    is run by `print`, which works on every machine.

    \b
    diffuse service print host --model demo --memory 4GiB
    diffuse service install --now host --model demo --memory 4GiB --metrics 9464
    diffuse service status
    diffuse service file compose > compose.yaml

    Secrets never stand in a unit: give --network-key-file FILE, or write DIFFUSE_NETWORK_KEY=...
    into /etc/diffuse/NAME.env, of mode 0600.
    """


@service.command("print", context_settings=_INNER)
@made
@inner_words
def print_unit(words: tuple[str, ...], **given: Any) -> None:
    """Print the systemd unit of a service, and do nothing else.

    \b
    diffuse service print host --model demo --memory 4GiB
    diffuse service print --user --name second sentinel --listen 0.0.0.0:9450
    """
    click.echo(_unit(words, given).text(), nl=False)


@service.command(context_settings=_INNER)
@made
@forced
@at_once
@inner_words
def install(words: tuple[str, ...], force: bool, now: bool, **given: Any) -> None:
    """Write the systemd unit of a service. As root one of the machine, else one of yours.

    What it prints then starts the service, now and whenever the machine starts; `--now` does it.

    \b
    diffuse service install host --model demo --memory 4GiB
    diffuse service install --user --now sentinel
    """
    unit = _unit(words, given)
    text = unit.text()
    require_systemd()
    check_here(unit)
    path = path_of(unit.scope, unit.name)
    new = write_unit(path, text, force=force)
    click.echo(f"{'wrote' if new else 'unchanged:'} {path}", err=True)
    # `enable --now` would leave one that runs as it is, with what an earlier unit said.
    start = [
        systemctl(unit.scope, "daemon-reload"),
        *(systemctl(unit.scope, verb, f"{unit.name}.service") for verb in ("enable", "restart")),
    ]
    _do(start, "to start it:", now=now)
    if unit.scope == "user":
        click.echo(
            "to have it run while you are not logged in:\n"
            f"  loginctl enable-linger {getpass.getuser()}"
        )


@service.command()
@scoped
@named
@forced
@at_once
def uninstall(scope: Scope | None, name: str | None, force: bool, now: bool) -> None:
    """Remove the systemd unit of a service; its state and what it downloaded stay.

    \b
    diffuse service uninstall --now
    diffuse service uninstall --user --name second
    """
    require_systemd()
    chosen, unit = scope or _usual_scope(), check_name(name or USUAL)
    path = path_of(chosen, unit)
    stop = systemctl(chosen, "disable", "--now", f"{unit}.service")
    if now and path.exists():
        run_all([stop])
        forget_failure(chosen, unit)
    remove_unit(path, force=force)
    click.echo(f"removed {path}", err=True)
    rest = [systemctl(chosen, "daemon-reload")]
    _do(rest if now else [systemctl(chosen, "stop", f"{unit}.service"), *rest], "then:", now=now)


@service.command()
@scoped
@named
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def status(scope: Scope | None, name: str | None, as_json: bool) -> int:
    """Tell what systemd knows of a service. Exit code 0 where it runs, else 5.

    \b
    diffuse service status
    diffuse service status --user --name second --json
    """
    require_systemd()
    found = shown(scope or _usual_scope(), check_name(name or USUAL))
    if as_json:
        print_json(found)
    else:
        click.echo(table([(key, value) for key, value in found.items() if value]))
    return 0 if found.get("ActiveState") == "active" else Unreachable.exit_code


@service.command(context_settings=_INNER)
@named
@inner_words
def ask(words: tuple[str, ...], name: str | None) -> int:
    """Run another command as the user of a service of the machine, with its keys. As root.

    Whoever owns the state of a service owns its node, and root is not that. A service of yours
    needs nothing of the kind: `diffuse drain`. The exit code is that of the command.

    \b
    diffuse service ask status
    diffuse service ask drain --timeout 3600
    diffuse service ask --name diffuse-serve serve --print-key
    """
    require_systemd()
    unit = check_name(name or USUAL)
    known = cast("click.Group", click.get_current_context().find_root().command).commands
    if not words or words[0] not in known:
        raise UsageError("which command? E.g.: diffuse service ask status")
    path = path_of("system", unit)
    text = read_unit(path)
    if text is None:
        raise UsageError(f"there is no {path}; is it another --name?")
    if os.geteuid() != 0:
        raise UsageError("only root may act as the user of a service: use sudo")
    return run_here(run_words(unit, text, words))


@service.command("file")
@click.argument("kind", type=click.Choice(list(KINDS)))
def deploy_file(kind: str) -> None:
    """Print a file for containers or monitoring, to begin with.

    container: how an image is built. compose: a sentinel, two hosts, the API and Prometheus.
    grafana: a dashboard, to import. prometheus: what to scrape. alerts: what to be woken for.

    \b
    diffuse service file container > Containerfile
    diffuse service file grafana > dashboard.json
    """
    place = files("diffuse_core.cli").joinpath("deploy", KINDS[kind])
    click.echo(place.read_text(encoding="utf-8"), nl=False)


def _usual_scope() -> Scope:
    return "system" if os.name == "posix" and os.geteuid() == 0 else "user"


def _unit(words: tuple[str, ...], given: dict[str, Any]) -> Unit:
    root = click.get_current_context().find_root().command
    inner = read_inner(cast("click.Group", root), words)
    unit = Unit(
        given["name"] or f"diffuse-{inner.command}",
        given["scope"] or _usual_scope(),
        inner,
        Path(sys.executable),
        given["run_as"],
    )
    check_unit(unit)
    if left := unit.left_out(os.environ):
        click.echo(
            f"diffuse: {', '.join(left)}: set here, and not for the service; give as options what "
            "its command needs",
            err=True,
        )
    return unit


def _do(commands: list[list[str]], heading: str, *, now: bool) -> None:
    if now:
        run_all(commands)
    else:
        click.echo(f"{heading}\n{words_of(commands)}")
