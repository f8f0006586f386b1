"""Starts the app: over the local node, or over a demo network."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING

from diffuse_core.config_file import read_config
from diffuse_core.configuration import (
    APP_SETTINGS,
    DEMO_SETTINGS,
    DTYPES,
    MOST_HOSTS,
    THEMES,
    Sources,
    app_problems,
    outdone,
)
from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError, UsageError
from diffuse_core.settings import check_value, network_options, parse_bootstrap, state_dir
from diffuse_tui.app import DiffuseApp
from diffuse_tui.local_node import LocalNode
from diffuse_tui.quiet import quiet

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.configuration import Setting, Value
    from diffuse_tui.presenter.hosting import Desk

SETTLED_S = 2.0
"""After so long the app has what it keeps: screens, styles, the first picture."""

OF_OTHERS = ("bootstrap", "allow", "model")
"""What is set is about another network, or another model, than the demo's."""

COLLECT_AFTER = 5000
"""Objects between two runs of the collector; Python's own figure is 700."""


def launch(arguments: list[str]) -> int:
    """Run the app; its exit status."""
    try:
        given = _parse(arguments)
        if not _in_browser() and not (sys.stdout.isatty() and sys.stdin.isatty()):
            raise UsageError(
                "the app needs a terminal; for scripts use `diffuse COMMAND`, e.g. "
                "`diffuse status --json`"
            )
        return asyncio.run(_demo(given) if given.command == "demo" else _local(given))
    except DiffuseError as error:
        sys.stderr.write(f"diffuse-tui: {error}\n")
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    finally:
        gc.enable()  # Off since the process began, where that was to show the app.


def _in_browser() -> bool:
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def _parse(arguments: list[str]) -> argparse.Namespace:
    usage = "diffuse-tui [demo|attach|chat] [OPTIONS]; see diffuse-tui --help"
    parser = argparse.ArgumentParser("diffuse-tui", usage=usage, add_help=False)
    parser.add_argument(
        "command", nargs="?", choices=["show", "demo", "attach", "chat"], default="show"
    )
    parser.add_argument("--bootstrap", action="append")
    parser.add_argument("--model")
    parser.add_argument("--state-dir")
    parser.add_argument("--network")
    parser.add_argument("--network-key")
    parser.add_argument("--network-key-file")
    parser.add_argument("--allow", action="append")
    parser.add_argument("--mdns", action=argparse.BooleanOptionalAction)
    parser.add_argument("--hosts", type=int, choices=range(1, MOST_HOSTS + 1), metavar="1-16")
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--theme", choices=THEMES)
    parser.add_argument("--no-history", action="store_true", default=None)
    parser.add_argument("--history", action="store_false", dest="no_history", default=None)
    given = parser.parse_args(arguments)
    for name in ("model", "state-dir"):
        if getattr(given, name.replace("-", "_")) == "":
            raise UsageError(f"--{name} is empty; give a value, or leave the option out")
    _complete(given)
    given.network = network_options(
        given.network,
        given.network_key,
        given.network_key_file,
        given.allow or (),
        mdns=given.mdns,
    )
    return given


def _complete(given: argparse.Namespace) -> None:
    """Set what no flag gave, from the environment and the file of settings.

    Raises:
        UsageError: something there is of no use; the message says where it is from.
    """
    file = read_config()
    for problem in app_problems(file):
        raise UsageError(problem)
    sources = Sources(os.environ, file)
    demo = given.command == "demo"
    flagged = given.network_key is not None or given.network_key_file is not None
    found: dict[str, Value] = {}
    for setting in (*APP_SETTINGS, *DEMO_SETTINGS):
        table = "demo" if setting in DEMO_SETTINGS else "app"
        apart = setting.key in OF_OTHERS if demo else table == "demo"
        if apart or getattr(given, _dest(setting)) is not None:
            continue
        value = sources.find(setting, [(table,), ()])
        if value is not None and not (flagged and setting.key.startswith("network-key")):
            found[setting.key] = value
    for setting in (*APP_SETTINGS, *DEMO_SETTINGS):
        if setting.key in found and not outdone(setting.key, found):
            setattr(given, _dest(setting), _checked(setting, found[setting.key]))
    given.hosts = given.hosts or 3
    given.dtype = given.dtype or "auto"


def _dest(setting: Setting) -> str:
    return setting.key.replace("-", "_")


def _checked(setting: Setting, value: Value) -> object:
    """A value as argparse would give it."""
    check_value(setting, value)
    return int(str(value.given)) if setting.kind == "whole" else value.given


def _history(given: argparse.Namespace, state: Path) -> Path | str:
    """The file that keeps conversations; in memory only where none is wanted on the disk."""
    return ":memory:" if given.no_history else state / "chats.db"


def _desk(node: LocalNode, *, demo: bool = False) -> Desk:
    """What hosts from the app: made when that is asked for, after the first paint."""
    from diffuse_tui.hosting_desk import ATTACH_REFUSAL, DEMO_REFUSAL, HostingDesk

    if demo:
        return HostingDesk(node, DEMO_REFUSAL, ends=False)
    return HostingDesk(node, "" if node.may_start else ATTACH_REFUSAL)


async def _local(given: argparse.Namespace) -> int:
    state = state_dir(given.state_dir)
    node = LocalNode(
        state,
        given.network,
        parse_bootstrap(given.bootstrap or ()),
        may_start=given.command != "attach",
    )
    try:
        app = DiffuseApp(
            node.attach,
            theme=given.theme,
            state=state,
            history=_history(given, state),
            model=given.model,
            open_chat=given.command == "chat",
            replace=node.replace,
            desk=lambda: _desk(node),
        )
        return await _show(app, state)
    finally:
        pid = await node.stop()
        if pid is not None:
            _tell_of_host(pid, given)


def _tell_of_host(pid: int, given: argparse.Namespace) -> None:
    """Quitting is not the end of what was begun: say so where the next command is typed."""
    from diffuse_core.cli.hints import command_here

    end = command_here("stop", given.state_dir, given.network)
    with contextlib.suppress(OSError):
        sys.stderr.write(
            f"diffuse-tui: the host goes on (process {pid}); the app attaches to it again, and "
            f"`{end}` ends it\n"
        )


async def _demo(given: argparse.Namespace) -> int:
    if given.network.allowed is not None:
        raise UsageError("demo makes a network of its own, of new nodes; leave out --allow")
    from diffuse_core.cli.common import Signals
    from diffuse_core.cli.demo import demo_network

    own = state_dir(given.state_dir)
    signals = Signals()
    task = asyncio.current_task()
    if task is not None:
        signals.watch(task.cancel)
    async with demo_network(given.hosts, given.network, given.dtype) as network:
        # Attached to the first host as its owner, so that "this machine" has a slice to show.
        state: Path = network.state_dir("host-1")
        node = LocalNode(state, given.network, (), may_start=False)
        try:
            model = given.model or DEMO_MODEL_ID
            app = DiffuseApp(
                node.attach,
                theme=given.theme,
                state=own,
                history=_history(given, own),
                model=model,
                open_chat=True,
                desk=lambda: _desk(node, demo=True),
            )
            return await _show(app, own)
        finally:
            # The app took the signals for itself; stopping must not be cut short by one.
            signals.watch(lambda: None)


def settle() -> None:
    """Let the collector work from now on, but not on what the start made, which stays to the end.

    Going through all of that would take 50 ms now and then, in the middle of an answer; through
    what came since, 20 ms, and as often as Python would do it, several times an answer.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()


async def _show(app: DiffuseApp, state: Path) -> int:
    settled = asyncio.get_running_loop().call_later(SETTLED_S, settle)
    with quiet(state):
        await app.run_async()
    settled.cancel()
    if app.last_words:
        sys.stderr.write(f"{app.last_words}\n")
    return app.return_code or 0
