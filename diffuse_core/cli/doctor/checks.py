"""Which checks there are: facts, gathered and judged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from diffuse_core import __version__
from diffuse_core.adapters.checkup.places import place_facts
from diffuse_core.adapters.checkup.ports import PortFacts, port_facts
from diffuse_core.adapters.checkup.screen import screen_facts
from diffuse_core.adapters.checkup.software import (
    TorchFacts,
    libraries,
    python_facts,
    torch_facts,
)
from diffuse_core.adapters.checkup.time_sync import synchronised
from diffuse_core.adapters.hardware import SystemHardware
from diffuse_core.adapters.sensors import SystemSensors
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli.doctor import clocks, here, machine, models, network, software
from diffuse_core.cli.doctor.checking import Check, blocking
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.cli.doctor.machine_facts import file_limits, memory_facts, thread_facts
from diffuse_core.cli.doctor.settings import cache_here, judge_settings, settings_facts
from diffuse_core.cli.doctor.surroundings import (
    LEAST_CACHE,
    LEAST_STATE,
    judge_default_ports,
    judge_listen,
    judge_no_place,
    judge_place,
    judge_screen,
    judge_serve,
)
from diffuse_core.settings import DEFAULT_PORT, PORT_TRIES, running_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import click

    from diffuse_core.cli.doctor.findings import Finding
    from diffuse_core.cli.doctor.looking import Look
    from diffuse_core.settings import NetworkOptions

LOOPBACK = "127.0.0.1"
ANYWHERE = "0.0.0.0"  # noqa: S104  (a port is tried there for a moment, as a node would)
NETWORK_S = 12.0
TORCH_WAIT_S = 10.0
TORCH_S = 12.0


@dataclass(frozen=True)
class Asked:
    """What the command line asks about."""

    state: Path
    network: NetworkOptions
    bootstrap: tuple[str, ...]
    listen: tuple[str, int] | None
    serve_port: int
    serve_named: bool
    models: tuple[str, ...]
    root: click.Command


def checks_of(asked: Asked, look: Look) -> list[Check]:
    """All checks, by group in the order that they are shown in."""
    return [
        *_software(asked),
        *_machine(asked),
        *_models(asked, look),
        *_here(asked),
        *_network(asked, look),
    ]


def _software(asked: Asked) -> Iterator[Check]:
    group = "Software"
    yield blocking(group, "python", lambda: software.judge_python(python_facts()))
    yield blocking(group, "libraries", lambda: software.judge_libraries(libraries()))
    yield Check(group, "torch", _torch, TORCH_S)
    yield blocking(group, "settings", lambda: judge_settings(*settings_facts(asked.root)))


async def _torch() -> list[Finding]:
    """Torch, and what GPUs are for it."""
    facts = await _torch_in_time()
    # A driver that hangs takes nobody but this check along.
    driver, names = await in_thread(_hardware)
    return [software.judge_torch(facts), software.judge_gpu(names, facts, driver=driver)]


def _hardware() -> tuple[bool, list[str]]:
    """Whether a GPU's driver is here, and the names of GPUs; blocks."""
    driver = SystemHardware().accelerator_likely()
    gpus = SystemSensors(cache_here(), nvidia=driver).sample().gpus
    return driver, [gpu.name for gpu in gpus]


async def _torch_in_time() -> TorchFacts:
    try:
        async with asyncio.timeout(TORCH_WAIT_S):
            return await torch_facts()
    except TimeoutError:
        return TorchFacts(problem=f"it did not load within {TORCH_WAIT_S:g} s", late=True)


def _machine(asked: Asked) -> Iterator[Check]:
    group = "Machine"
    hardware = SystemHardware()
    yield blocking(group, "threads", lambda: machine.judge_threads(thread_facts(hardware)))
    yield blocking(group, "memory", lambda: machine.judge_memory(memory_facts(hardware)))
    yield blocking(group, "open files", lambda: machine.judge_files(*file_limits()))
    yield blocking(group, "clock", lambda: clocks.judge_sync(synchronised()))
    yield blocking(group, "terminal", lambda: judge_screen(screen_facts()))
    yield blocking(
        group, "state directory", partial(look_at_place, "state directory", asked.state)
    )
    yield blocking(
        group, "cache directory", partial(look_at_place, "cache directory", cache_here())
    )


def look_at_place(name: str, path: Path) -> Finding:
    """Whether the state or the cache directory can be used."""
    state = name == "state directory"
    variable = "--state-dir" if state else "DIFFUSE_CACHE_DIR"
    try:
        facts = place_facts(path)
    except NotADirectoryError as error:
        return judge_no_place(name, variable, path, error.filename)
    return judge_place(name, variable, facts, LEAST_STATE if state else LEAST_CACHE)


def _models(asked: Asked, look: Look) -> Iterator[Check]:
    group = "Model files"
    cache = cache_here()
    if "demo" not in asked.models:
        yield blocking(group, "demo model", lambda: models.judge_demo(cache, asked=False))
    for name in asked.models:
        hub = models.on_hub(name)
        if hub is not None:
            yield blocking(group, name, partial(models.judge_hub, hub, cache))
            continue
        yield blocking(group, name, partial(models.judge_model, name, cache))
        yield Check(group, name, partial(_same_as_there, name, cache, look), NETWORK_S)
    yield blocking(group, "downloads", lambda: models.judge_left_over(*models.left_over(cache)))


async def _same_as_there(name: str, cache: Path, look: Look) -> Finding | None:
    """Whether a model here is that which the network has under its name."""
    prints = await in_thread(lambda: models.fingerprints(name, cache))
    view = await look.view()
    return None if view is None or prints is None else models.judge_same(prints, view)


def _here(asked: Asked) -> Iterator[Check]:
    group = "This node"
    yield blocking(group, "keys", lambda: here.judge_keys(asked.state))
    yield blocking(group, "api key", lambda: here.judge_api_key(asked.state))
    yield Check(group, "node here", partial(_node_here, asked))
    yield blocking(group, "port", partial(_listen, asked))
    yield blocking(group, "serve port", partial(_serve, asked))


async def _node_here(asked: Asked) -> list[Finding]:
    facts = await here.here_facts(asked.state, asked.network)
    return network.judge_here(facts, __version__)


def _listen(asked: Asked) -> Finding:
    found = running_node(asked.state)
    own = None if found is None else found.pid
    if asked.listen is not None:
        return judge_listen(port_facts(*asked.listen), own)
    tried: list[PortFacts] = []
    for port in range(DEFAULT_PORT, DEFAULT_PORT + PORT_TRIES):
        tried.append(port_facts(ANYWHERE, port))
        if not tried[-1].problem:
            break
    return judge_default_ports(tried, own)


def _serve(asked: Asked) -> Finding:
    return judge_serve(port_facts(LOOPBACK, asked.serve_port), asked.serve_named)


def _network(asked: Asked, look: Look) -> Iterator[Check]:
    group = "Network"

    async def addresses() -> list[Finding]:
        if not asked.bootstrap:
            return []
        return [network.judge_address(one) for one in await look.addresses()]

    async def found() -> Finding:
        view = await look.view()
        return network.judge_look(view, look.why, bool(asked.bootstrap))

    async def sentinels() -> Finding | None:
        if await look.view() is None:
            return None
        return network.judge_sentinels(await look.sentinels())

    async def held() -> list[Finding]:
        view = await look.view()
        return [] if view is None else network.judge_models(view)

    async def versions() -> Finding | None:
        view = await look.view()
        return None if view is None else network.judge_versions(view.nodes, __version__)

    async def times() -> Finding | None:
        if await look.view() is None:
            return None
        probes = await look.probes()
        ahead = {
            node: probe.ahead_s
            for node, probe in probes.items()
            if probe is not None and probe.ahead_s is not None
        }
        return clocks.judge_against(ahead, SystemClock().wall())

    yield Check(group, "bootstrap", addresses, NETWORK_S)
    yield Check(group, "lan", partial(_lan, asked), NETWORK_S)
    yield Check(group, "network", found, NETWORK_S)
    yield Check(group, "sentinels", sentinels, NETWORK_S)
    yield Check(group, "models", held, NETWORK_S)
    yield Check(group, "versions", versions, NETWORK_S)
    yield Check(group, "clock of others", times, NETWORK_S)


async def _lan(asked: Asked) -> Finding:
    if not asked.network.mdns:
        return network.judge_lan((), 0, wanted=False)
    from diffuse_core.adapters.mdns import lan_interfaces
    from diffuse_core.finding import on_lan

    interfaces = [str(one.ip) for one in lan_interfaces(ANYWHERE)]
    near = await on_lan(asked.network) if interfaces else []
    return network.judge_lan(interfaces, len(near), wanted=True)
