"""Commands that end the node running here, as its owner: stop, drain."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import attached, print_json, run_until_done, set_logging
from diffuse_core.cli.hints import command_here
from diffuse_core.errors import ChannelClosed, Unreachable
from diffuse_core.settings import running_node, state_dir

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from diffuse_core.domain.view import FeedUpdate
    from diffuse_core.settings import NetworkOptions, NodeFile

DRAIN_S = 600
MAX_DRAIN_S = 86_400
"""As much as the message to the node may say."""
ANSWER_S = 10.0
"""For the first word of the node."""

as_json = click.option("--json", "as_json", is_flag=True, help="For scripts.")


@dataclass(frozen=True)
class Ended:
    """How a node ended. `sessions` ran when it was asked to."""

    node: str
    pid: int
    seconds: float
    sessions: int
    cut: int
    """Sessions that were still running when the time was up."""


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for sessions: end them.")
@as_json
@attached
def stop(now: bool, as_json: bool, **given: Any) -> None:
    """End the node that runs here with this state directory.

    A host lets its sessions finish for up to 6 seconds; `--now` does not wait, and also ends a
    drain at once. Of several requests the one for the earliest end counts. Returns when the
    process is gone.

    \b
    diffuse stop
    diffuse stop --now
    diffuse stop --state-dir ~/second-node --json

    Exit codes: 0 the node is gone · 2 usage, or key files that cannot be used ·
    5 no node runs here, or it does not answer · 6 it does not take us for its owner,
    or did not end in time · 130 interrupted: the node ends all the same.
    """
    _run(given, 0.0 if now else None, as_json=as_json)


@click.command()
@click.option(
    "--timeout",
    type=click.IntRange(1, MAX_DRAIN_S),
    default=DRAIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How long sessions may take; what then still runs is ended. At most a day.",
)
@as_json
@attached
def drain(timeout: int, as_json: bool, **given: Any) -> None:
    """Let the node that runs here finish its sessions and take no new ones; then end it.

    Any node may be drained; one that holds no slice has no sessions, and ends at once.

    It tells the network that it leaves, so that others take over. Ctrl+C ends this command, not
    the drain: the node goes on with it. `diffuse stop --now` ends it at once. Of several requests
    the one for the earliest end counts. Returns when the process is gone.

    \b
    diffuse drain
    diffuse drain --timeout 3600
    diffuse drain --state-dir ~/second-node --json

    Exit codes: 0 the node is gone · 2 usage, or key files that cannot be used ·
    5 no node runs here, or it does not answer · 6 it does not take us for its owner,
    or did not end in time · 130 interrupted: the node goes on draining.
    """
    _run(given, float(timeout), as_json=as_json)


def _run(given: dict[str, Any], patience: float | None, *, as_json: bool) -> None:
    set_logging(given["log_level"], given["log_format"])
    ended = run_until_done(
        _end(state_dir(given["state_dir"]), given["network"], patience, _goes_on(given, patience))
    )
    if as_json:
        print_json(asdict(ended))
        return
    click.echo(f"node {ended.node[:8]} (pid {ended.pid}) is gone{_cut_text(ended.cut, patience)}")


def _goes_on(given: dict[str, Any], patience: float | None) -> str:
    """What to tell who interrupts the command."""
    now = command_here("stop --now", given["state_dir"], given["network"])
    if patience == 0:
        return "the node ends all the same"
    what = "ends all the same" if patience is None else "goes on draining"
    return f"the node {what}; to end it at once: {now}"


def _cut_text(cut: int, patience: float | None) -> str:
    if not cut:
        return ""
    if patience == 0:
        return f"; {_count(cut)} {'was' if cut == 1 else 'were'} ended"
    return f"; {_count(cut)} did not finish in time"


def _count(sessions: int) -> str:
    return f"{sessions} session{'' if sessions == 1 else 's'}"


async def _end(
    state: Path, network: NetworkOptions, patience: float | None, goes_on: str
) -> Ended:
    """Ask the node to end and wait until it has.

    Raises:
        Unreachable: none runs, or it does not answer.
        Refused: this is not its owner, or it did not end in time.
    """
    from diffuse_core import node_end
    from diffuse_core.wiring import attach

    found = running_node(state)
    if found is None:
        raise Unreachable(
            f"no node runs with the state directory {state}, so there is nothing to end; name "
            "that of another node with --state-dir DIR"
        )
    process = node_end.process_of(found.pid)
    attachment = await attach(state, network)
    seen: list[int] = []
    try:
        async with contextlib.aclosing(attachment.updates()) as updates:
            running = await _first(updates, found)
            begun = time.monotonic()  # noqa: TID251 - a command has no clock but this
            with _saying(goes_on):
                async with node_end.in_time(found.pid, patience):
                    await attachment.stop_node(patience)
                    _note(running, seen)
                    await _watch(updates, seen)
                    await node_end.gone(process)
    finally:
        await attachment.close()
    seconds = time.monotonic() - begun  # noqa: TID251
    cut = seen[-1] if seconds >= node_end.usual_patience(patience) else 0
    return Ended(found.node, found.pid, round(seconds, 3), running, cut)


@contextlib.contextmanager
def _saying(goes_on: str) -> Iterator[None]:
    """Tell who interrupts this that the node goes on."""
    try:
        yield
    except asyncio.CancelledError:
        click.echo(goes_on, err=True)
        raise


async def _first(updates: AsyncGenerator[FeedUpdate, None], found: NodeFile) -> int:
    """How many Sessions run, before the node is asked to end: then it may be too fast to tell.

    Raises:
        Unreachable: the node is silent, or it ended.
        Refused: this is not its owner.
    """
    from diffuse_core.wiring import silent

    try:
        async with asyncio.timeout(ANSWER_S):
            return _sessions(await anext(updates))
    except TimeoutError:
        raise silent(found) from None


def _sessions(update: FeedUpdate) -> int:
    return update.telemetry.sessions if update.telemetry is not None else 0


def _note(left: int, seen: list[int]) -> None:
    if left and left != (seen[-1] if seen else 0):
        click.echo(f"{_count(left)} left", err=True)
    seen.append(left)


async def _watch(updates: AsyncGenerator[FeedUpdate, None], seen: list[int]) -> None:
    """Tell how many Sessions are left, until the channel ends; they are added to `seen`."""
    with contextlib.suppress(ChannelClosed):
        async for update in updates:
            if update.telemetry is not None:
                _note(_sessions(update), seen)
