"""What operators get of a running service: its figures over HTTP, and word to systemd."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core import __version__
from diffuse_core.adapters.sd_notify import Notifier
from diffuse_core.errors import UsageError
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from prometheus_client.metrics_core import Metric

    from diffuse_core.services.tally import AnswerTally
    from diffuse_core.services.vitals import Health

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 16
GRACE_S = 0.5
TICK_S = 1.0
EXTEND_S = 15.0
"""A service that is ending says so every TICK_S: it may take so much longer."""


@dataclass(frozen=True)
class Operations:
    """How a service is watched. `metrics` is where it tells its figures; None: nowhere."""

    metrics: tuple[str, int] | None = None
    notifier: Notifier = field(default_factory=Notifier)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.asynccontextmanager
async def figures_served(
    address: tuple[str, int] | None,
    source: Callable[[], Iterable[Metric]],
    health: Callable[[], Health],
) -> AsyncGenerator[str | None, None]:
    """Tell figures and health at `address`; gives HOST:PORT, None where nothing was asked for.

    Raises:
        UsageError: it cannot listen there.
    """
    if address is None:
        yield None
        return
    from diffuse_core.adapters.http_server import HostGuard, HttpLimits, plain, serve_http
    from diffuse_core.adapters.metrics import metrics_app

    limits = HttpLimits(connections=MAX_CONNECTIONS, body_bytes=0, grace_s=GRACE_S)
    async with contextlib.AsyncExitStack() as stack:
        try:
            app = metrics_app(source, health)
            if is_loopback(address[0]):
                # Web pages reach it by names of their own that lead here.
                app = HostGuard(app, (), plain, any_address=True)
            server = await stack.enter_async_context(serve_http(app, *address, limits))
        except UsageError as error:
            raise UsageError(
                f"cannot tell metrics at {address[0]}:{address[1]}: the port is in use, or not "
                "of this machine; choose another with --metrics"
            ) from error
        if not is_loopback(address[0]):
            log.warning(
                "metrics are told at %s to whoever can reach it: have a firewall in front",
                server.address,
            )
        log.info("metrics at http://%s/metrics, health at /healthz and /readyz", server.address)
        yield server.address


@contextlib.asynccontextmanager
async def server_watched(
    operations: Operations,
    tally: AnswerTally,
    status: str,
    trouble: Callable[[], str],
    stopping: asyncio.Event,
) -> AsyncGenerator[None, None]:
    """Tell operators how a server for other programs is, which is no node.

    `trouble` says why it cannot answer now; nothing where it can.

    Raises:
        UsageError: it cannot tell metrics where it should.
    """
    from diffuse_core.services.loop_lag import LoopLag
    from diffuse_core.services.vitals import Health

    loop = asyncio.get_running_loop()
    lag, started = LoopLag(), loop.time()

    def source() -> Iterable[Metric]:
        from diffuse_core.adapters.metrics import of_server

        tasks = len(asyncio.all_tasks())
        return of_server(__version__, loop.time() - started, lag.lags(), tasks, tally)

    def health() -> Health:
        why = "it is ending" if stopping.is_set() else trouble()
        return Health(True, not why, why)

    def told() -> str:
        why = trouble()
        return f"{status}; {why}" if why else status

    lag.start()
    try:
        async with (
            figures_served(operations.metrics, source, health),
            reported(operations.notifier, told, health, stopping),
        ):
            yield
    finally:
        lag.stop()


@contextlib.asynccontextmanager
async def reported(
    notifier: Notifier,
    status: Callable[[], str],
    health: Callable[[], Health],
    stopping: asyncio.Event,
) -> AsyncGenerator[None, None]:
    """Keep the service manager informed: that this is ready, what it does, that it lives.

    The watchdog is told by a task of the event loop, so only as long as that turns, and as long
    as `health` finds the rest alive.
    """
    if not notifier.wanted:
        yield
        return
    notifier.ready(status())
    tasks = TaskOwner("sd_notify")
    tasks.spawn(_report(notifier, status, health, stopping), "report")
    try:
        yield
    finally:
        await tasks.close()
        notifier.stopping()
        notifier.close()


async def _report(
    notifier: Notifier,
    status: Callable[[], str],
    health: Callable[[], Health],
    stopping: asyncio.Event,
) -> None:
    watchdog_s = notifier.watchdog_s
    tick_s = TICK_S if watchdog_s is None else min(TICK_S, watchdog_s / 2)
    told = False
    while True:
        if stopping.is_set():
            if not told:
                told = True
                notifier.stopping()
            notifier.extend(EXTEND_S)
        notifier.status(status())
        if watchdog_s is not None and health().alive:
            notifier.alive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(tick_s):
                # Once it is set there is nothing to wake up for but the time.
                await (asyncio.sleep(tick_s) if told else stopping.wait())
