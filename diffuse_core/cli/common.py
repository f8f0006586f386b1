"""What the commands share: options, logging, and running asyncio code under signals."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from diffuse_core.cli.log_lines import set_logging as set_logging
from diffuse_core.configuration import DTYPES, SECRET_VARIABLE
from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import EXIT_INTERRUPTED
from diffuse_core.own_paths import full_path
from diffuse_core.settings import (
    DEFAULT_NETWORK,
    DEFAULT_PORT,
    NetworkOptions,
    Places,
    network_options,
    parse_bootstrap,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import DeviceKind

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

LEVELS = ("debug", "info", "warning", "error")


def adding(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that adds several options, which help lists in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def not_empty(_context: click.Context, _option: click.Parameter, value: T) -> T:
    """Refuse empty texts: a shell makes them of variables that are not set."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("it is empty; give a value, or leave the option out")
    return value


def _check_state_dir(
    context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    if not_empty(context, option, value) is not None:
        full_path(str(value))
    return value


def a_path(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """The whole of a path: files of settings and units have `~`, which no shell has seen."""
    return None if path is None else full_path(str(path))


def _check_bootstrap(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse what are no addresses, before anything is begun."""
    parse_bootstrap(values)
    return values


def finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which no range check catches."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no usable number")
    return value


def a_size(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """Refuse what is no size, before anything is begun."""
    if text is not None:
        parse_size(text)
    return text


logged = adding(
    click.option(
        "--network",
        metavar="NAME",
        help=f"Nodes of another network name are not talked to. Default: {DEFAULT_NETWORK}.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default=None,
        help="Least level that is logged to stderr. Default: warning; info for host, node, "
        "sentinel and serve; error for chat and doctor.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How log lines are written.",
    ),
)
"""Options that every command has."""

private = adding(
    click.option(
        "--network-key",
        metavar="SECRET",
        help="Shared secret of a private network. Other users of this machine see what is on "
        f"a command line: better --network-key-file, or {SECRET_VARIABLE} in the environment.",
    ),
    click.option(
        "--network-key-file",
        metavar="FILE",
        help="Read the shared secret from the first line of FILE. Default: no secret.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="ID|FILE",
        help="Talk to these nodes only: full node ids, or files with one a line. May be repeated. "
        "Default: everybody on the network.",
    ),
    click.option(
        "--mdns/--no-mdns",
        default=None,
        help="Find nodes on the LAN by multicast DNS, and be found. Never on loopback. "
        "Default: do.",
    ),
)
"""Options of who is on the network, and how it is found without an address."""

stateful = click.option(
    "--state-dir",
    metavar="DIR",
    callback=_check_state_dir,
    help="Where the node here keeps its identity, and what it knows of the network. Default: "
    "this user's; several nodes on a machine need one each.",
)
"""The option that says which node of this machine is meant."""

placed = adding(
    click.option(
        "--bootstrap",
        multiple=True,
        metavar="A,B",
        callback=_check_bootstrap,
        help=f"HOST[:PORT] of known nodes; port {DEFAULT_PORT} when left out. Default: the node "
        "here, else those that were met before, else the LAN.",
    ),
    stateful,
)
"""Options of commands that find a network."""


def common(function: F) -> F:
    """Options of nearly every command; they come last in its help.

    `network` is given to the command as NetworkOptions.
    """
    return placed(private(logged(_with_network(function))))


def attached(function: F) -> F:
    """As `common`, for commands that reach the node of this state directory and no other."""
    return stateful(private(logged(_with_network(function))))


def _with_network(function: F) -> F:
    @functools.wraps(function)
    def with_network(**given: Any) -> Any:
        network = _network_options(given)
        return function(**given, network=network)

    return cast("F", with_network)


def _network_options(given: dict[str, Any]) -> NetworkOptions:
    """Take the options of the network out of `given`."""
    return network_options(
        given.pop("network"),
        given.pop("network_key"),
        given.pop("network_key_file"),
        given.pop("allow"),
        mdns=given.pop("mdns"),
    )


def dtyped(auto: str) -> Callable[[F], F]:
    """The option of how to hold and compute weights; `auto` says what that means here."""
    return click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default="auto",
        show_default=True,
        help=f"How to hold and compute weights. auto: {auto}. int8 and int4 save memory, on a "
        "CPU, and change what is said a little.",
    )


device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="What to compute on. auto: a GPU that torch can use, else the CPU.",
)

holding = adding(
    click.option(
        "--memory",
        metavar="SIZE",
        callback=a_size,
        help="What weights and KV cache may take, without Python and torch: 150MiB, 2GB. "
        "Default: most of what is free, on the GPU when that computes.",
    ),
    click.option(
        "--max-layers", type=click.IntRange(1), help="Most layers to hold. Default: no limit."
    ),
    dtyped("as the network does with this model, else bf16 (fp32 where only that is fast)"),
    device,
)
"""Options of how much of a model to hold, and how to compute it."""

threaded = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Compute threads; default as many as there are physical cores to use. Fewer are "
    "faster where other programs keep cores busy.",
)


def chosen_contract(dtype: str) -> Contract | None:
    """The contract that --dtype names; None for `auto`."""
    return None if dtype == "auto" else cast("Contract", dtype)


def chosen_device(device: str) -> DeviceKind | None:
    """The device that --device names; None for `auto`."""
    return None if device == "auto" else cast("DeviceKind", device)


def find_bootstrap(given: tuple[str, ...], state: str | None) -> Places:
    """Where to ask: at the addresses given, else where the state directory leads."""
    return Places(parse_bootstrap(given), state_dir(state))


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into a cancelled task, and remembers which it was."""

    def __init__(self) -> None:
        self.code = 0
        self.count = 0

    def watch(self, act: Callable[[], object]) -> None:
        """Call `act` on each signal; must be called in the running loop."""
        loop = asyncio.get_running_loop()

        def on(number: signal.Signals) -> None:
            self.code = EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number
            self.count += 1
            act()

        names = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP"):
            names.append(signal.SIGHUP)
        for number in names:
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, on, number)


def run_until_done(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; a signal cancels it, cleans up and exits.

    Raises:
        SystemExit: 130 after Ctrl+C, 128+n after another signal.
    """
    signals = Signals()

    async def main() -> T:
        task = asyncio.ensure_future(work)
        signals.watch(task.cancel)
        return await task

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.stdout.flush()
        raise SystemExit(signals.code or EXIT_INTERRUPTED) from None


def run_service(work: Callable[[asyncio.Event], Coroutine[Any, Any, object]]) -> int:
    """Run a service until a signal asks it to stop: SIGTERM is its good end, Ctrl+C gives 130.

    A second signal does not wait for what the service still finishes.
    """
    signals = Signals()

    async def main() -> None:
        stop = asyncio.Event()
        task = asyncio.ensure_future(work(stop))
        signals.watch(lambda: task.cancel() if signals.count > 1 else stop.set())
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
    return EXIT_INTERRUPTED if signals.code == EXIT_INTERRUPTED else 0


def print_json(value: Any) -> None:
    """Write msgspec structures or plain data as JSON to stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns padded to their widest cell; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
