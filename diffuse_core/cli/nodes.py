"""Commands that run a node until they are stopped: sentinel, host, node."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import (
    adding,
    chosen_contract,
    chosen_device,
    common,
    holding,
    not_empty,
    run_service,
    set_logging,
    threaded,
)
from diffuse_core.cli.hints import on_network
from diffuse_core.cli.layers import from_flag
from diffuse_core.cli.log_lines import errors_logged, finish_lines, name_node, tell
from diffuse_core.cli.operated import operated, operations
from diffuse_core.cli.relay_limits import limited, relay_limits
from diffuse_core.cli.stop import MAX_DRAIN_S
from diffuse_core.domain.identity import SHORT_LENGTH
from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import UsageError
from diffuse_core.settings import (
    DEFAULT_PORT,
    parse_address,
    parse_bootstrap,
    parse_public,
    state_dir,
)

if TYPE_CHECKING:
    from diffuse_core.domain.relay import RelayLimits
    from diffuse_core.running import NodeOptions
    from diffuse_core.settings import NetworkOptions

WITH_PARENT = "--exit-with-parent"


listening = adding(
    click.option(
        "--listen",
        metavar="HOST:PORT",
        callback=not_empty,
        help="Where to listen; default all interfaces, port 9440 or the next free.",
    ),
    click.option(
        "--public-addr",
        multiple=True,
        metavar="HOST:PORT",
        help="Address that others reach this node at, when not that of its interface. They are "
        "told it first in any case; where sentinels cannot dial its port, you are warned, and "
        "with --relay auto they relay as well.",
    ),
    click.option(WITH_PARENT, is_flag=True, hidden=True),
)
"""Options of commands that listen."""

relaying = adding(
    click.option(
        "--relay",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Whether others reach this node through sentinels, which carry ciphertext: auto when "
        "sentinels cannot dial it, as behind a router, also beside --public-addr; always to keep "
        "its own addresses to itself; never to be dialled or not be reached.",
    ),
)
"""Options of commands that listen and are no sentinel, which relays itself."""


@click.command()
@listening
@limited
@operated
@common
def sentinel(**given: Any) -> int:
    """Run a sentinel: a well-known node that others bootstrap from.

    \b
    diffuse sentinel
    diffuse sentinel --listen 0.0.0.0:9440 --public-addr sentinel.example.org:9440
    diffuse sentinel --metrics 9464 --log-format json
    diffuse sentinel --bootstrap A:9440 --max-circuits 48 --bandwidth 8MiB
    """
    return _run(given, role="sentinel")


@click.command()
@listening
@relaying
@operated
@common
def node(**given: Any) -> int:
    """Join the network without holding a slice, for the app and other tools to attach to.

    \b
    diffuse node --bootstrap 192.168.1.20:9440
    diffuse node --bootstrap 192.168.1.20:9440 --relay always
    """
    return _run(given, role="client")


@click.command()
@listening
@relaying
@click.option(
    "--model",
    required=True,
    metavar="M",
    callback=not_empty,
    help="`demo`, a GGUF file, a directory, ORG/NAME[@REVISION] of the hub, or `auto`: the "
    "model of the network that needs this host most.",
)
@holding
@click.option(
    "--target-replicas",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Holders per layer from which a model is called Robust.",
)
@threaded
@click.option(
    "--drain-timeout",
    type=click.IntRange(0, MAX_DRAIN_S),
    metavar="SECONDS",
    help="How long sessions may take to finish after SIGTERM or Ctrl+C; then they are ended. At "
    "most a day. A second signal ends them at once. Default: 6.",
)
@operated
@common
def host(**given: Any) -> int:
    """Hold a slice of a model, chosen by the network where it helps most, and compute it.

    \b
    diffuse host --model demo
    diffuse host --model HuggingFaceTB/SmolLM2-1.7B-Instruct --memory 1GiB
    diffuse host --model ./model.gguf --bootstrap 192.168.1.20:9440 --memory 4GiB
    diffuse host --model ./model.gguf --dtype int4 --device cpu --threads 4
    diffuse host --model demo --bootstrap sentinel.example.org:9440 --relay always
    diffuse host --model demo --metrics 9464 --drain-timeout 120 --log-format json
    """
    return _run(given, role="host")


def _run(given: dict[str, Any], role: Any) -> int:
    file = given["log_file"]
    set_logging(given["log_level"], given["log_format"], "info", file, no_data=True)
    with errors_logged(file):
        code = _run_service(given, _options(given, role))
    finish_lines()
    sys.stdout.flush()
    sys.stderr.flush()
    # The executor thread may be deep in a computation or an import that nobody waits for now.
    os._exit(code)


def _run_service(given: dict[str, Any], options: NodeOptions) -> int:
    _check_first(options)
    from diffuse_core.running import run_node

    async def work(stop: asyncio.Event) -> None:
        if given["exit_with_parent"]:
            watcher = await _watch_parent(stop)
            try:
                await run_node(options, stop)
            finally:
                watcher.close()
        else:
            await run_node(options, stop)

    return run_service(work)


def _check_first(options: NodeOptions) -> None:
    """What can be known before keys are made: a typing error must leave nothing behind.

    Raises:
        UsageError: it cannot listen there, or its keys are those of its owner.
    """
    from diffuse_core.adapters.file_storage import check_apart
    from diffuse_core.finding import OWNER_KEY
    from diffuse_core.running import IDENTITY_KEY

    if options.listen is not None:
        _check_host(options.listen[0])
    check_apart(options.state, IDENTITY_KEY, OWNER_KEY)


def _check_host(host: str) -> None:
    """Refuse a host that no port of this machine can be bound at; other problems show later."""
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"cannot listen on {host!r}: no such host; give --listen an address of this machine"
        ) from error
    for family, kind, protocol, _, address in infos:
        try:
            with socket.socket(family, kind, protocol) as one:
                one.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise UsageError(
                    f"{host} is no address of this machine; choose one with --listen"
                ) from error


def _options(given: dict[str, Any], role: Any) -> NodeOptions:
    from diffuse_core.running import NodeOptions
    from diffuse_core.services.host import HostOptions

    serving = None
    if role == "host":
        serving = HostOptions(
            model=given["model"],
            contract=chosen_contract(given["dtype"]),
            memory=parse_size(given["memory"]) if given["memory"] else None,
            max_layers=given["max_layers"],
        )
    listen = parse_address(given["listen"], DEFAULT_PORT) if given["listen"] else None
    public = parse_public(given["public_addr"])
    if given.get("relay") == "always" and from_flag("relay") and not from_flag("public_addr"):
        public = ()  # What the environment or the file says was for another way of reaching it.
    if public and given.get("relay") == "always":
        raise UsageError(
            "--relay always keeps this node's addresses to itself, and --public-addr tells one; "
            "give one of them"
        )
    return NodeOptions(
        state=state_dir(given["state_dir"]),
        role=role,
        listen=listen,
        bootstrap=parse_bootstrap(given["bootstrap"]),
        network=given["network"],
        public=public,
        relay=given.get("relay", "auto"),
        relay_limits=_limits(given) if role == "sentinel" else None,
        target_replicas=given.get("target_replicas", 2),
        host=serving,
        drain=given.get("drain_timeout"),
        operations=operations(given),
        device=chosen_device(given.get("device", "auto")),
        threads=given.get("threads"),
        started=lambda node, bound, reachable: _tell(
            role, given["network"], node, bound, reachable
        ),
    )


def _limits(given: dict[str, Any]) -> RelayLimits:
    from diffuse_core.adapters.websocket_transport.gate import MAX_CONNECTIONS

    return relay_limits(given, MAX_CONNECTIONS)


def _tell(
    role: str, network: NetworkOptions, node: str, bound: str, reachable: tuple[str, ...]
) -> None:
    """Say who listens where, and what to type on the next machine."""
    from diffuse_core.domain.relayed_address import is_relayed

    name_node(node[:SHORT_LENGTH])
    tell(f"{role} {node} listens on {bound}", role=role, id=node, address=bound)
    dialled = [address for address in reachable if not is_relayed(address)]
    if dialled and role != "client":
        where = f"--bootstrap {dialled[0]}{on_network(network)}"
        command = f"diffuse host --model M {where}"
        tell(f"others join with: {command}", command=command)


async def _watch_parent(stop: asyncio.Event) -> asyncio.ReadTransport:
    """Stop when our standard input ends: the process that started us is gone."""

    class Watcher(asyncio.Protocol):
        def connection_lost(self, _error: Exception | None) -> None:
            stop.set()

    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(Watcher, sys.stdin)
    return transport
