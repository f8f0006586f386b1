"""The server for other programs: the OpenAI API over HTTP, on a network that is kept in view."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.adapters.few_files import bear_few_files
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.errors import DiffuseError
from diffuse_core.finding import find_network
from diffuse_core.operating import Operations, server_watched
from diffuse_core.services.chosen_models import ChosenModels
from diffuse_core.services.client import ClientService
from diffuse_core.services.counted_answers import CountedAnswers
from diffuse_core.services.kept_network import KeptNetwork
from diffuse_core.settings import PUBLIC, NetworkOptions, Places, cache_dir, state_dir
from diffuse_core.wiring import fresh_rng, open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from diffuse_core.adapters.http_server import HttpLimits, Refusal
    from diffuse_core.adapters.http_server.refusal import Headers
    from diffuse_core.ports import Answers
    from diffuse_core.services.observer import Observer

HEALTH = "/healthz"
HEALTH_S = 2.5
"""Whoever asks how a server is has little patience."""
ANY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, never bound by this line)


@dataclass(frozen=True)
class ServeOptions:
    """How to serve. Without a `key` everybody who reaches the port may ask.

    The key is asked for once the port is ours: where it is not, none is made.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    key: Callable[[], str] | None = None
    names: tuple[str, ...] = ()
    """Names of this server in Host headers, beside its address and those of loopback."""
    origins: tuple[str, ...] = ()
    """Whose web pages may ask."""
    models: tuple[str, ...] = ()
    """The only ones to serve; () is for all of the network."""
    at_once: int = 16
    """Generations at a time."""
    places: Places = field(default_factory=Places)
    network: NetworkOptions = PUBLIC
    operations: Operations = field(default_factory=Operations)
    limits: HttpLimits | None = None


async def serve_api(
    options: ServeOptions, stop: asyncio.Event, ready: Callable[[str], object]
) -> None:
    """Serve until `stop` is set; answers that are being given then get some seconds.

    There need be no network yet: it is looked for until there is one.

    Args:
        options: how to serve.
        stop: ends it.
        ready: called with HOST:PORT once requests are taken there.

    Raises:
        UsageError: a port is in use, an address is not of this machine, or there is no key.
    """
    from diffuse_core.adapters.http_server import HttpLimits, serve_http

    bear_few_files(asyncio.get_running_loop())
    limits = options.limits or HttpLimits()
    kept = KeptNetwork(
        partial(find_network, options.places, options.network),
        partial(_client, options.places),
        SystemClock(),
    )
    counted = CountedAnswers(ChosenModels(kept, options.models) if options.models else kept)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    try:
        async with serve_http(answer, options.host, options.port, limits, told) as server:
            app = api_app(counted, options, limits)
            kept.start()
            status = f"serves at {server.address}"
            watched = server_watched(
                options.operations, counted.tally, status, lambda: kept.trouble, stop
            )
            async with watched:
                ready(server.address)
                await stop.wait()
    finally:
        await kept.close()


def _client(places: Places, observer: Observer) -> ClientService:
    cache = FileStorage(cache_dir() / "bundles")
    kept = FileStorage(places.state or state_dir(None))
    return ClientService(observer, cache, open_tokenizer, fresh_rng(), quarantine=kept)


def told(refusal: Refusal) -> tuple[int, Headers, bytes]:
    """A refusal of the HTTP server, in the shape of the API."""
    from diffuse_core.adapters.openai_server import ApiError, rendered

    return rendered(
        ApiError(
            refusal.status,
            refusal.message,
            code=refusal.code,
            retry_after_s=refusal.retry_after_s,
        )
    )


def api_app(answers: Answers, options: ServeOptions, limits: HttpLimits) -> ASGIApp:
    """The API's routes behind all guards."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    from diffuse_core.adapters.http_server import (
        BearerGuard,
        HostGuard,
        JsonGuard,
        OriginGuard,
        RequestLog,
    )
    from diffuse_core.adapters.openai_server import ApiLimits, http_error, openai_routes

    bounds = ApiLimits(at_once=options.at_once)
    routes = openai_routes(answers, bounds, SystemClock())
    health = Route(HEALTH, partial(_health, answers), methods=["GET"])
    inner = Starlette(
        routes=[health, *routes],
        exception_handlers={HTTPException: http_error, Exception: _defect},
    )
    # It would lead clients of a proxy that speaks TLS on to the same path in clear.
    inner.router.redirect_slashes = False
    app: ASGIApp = JsonGuard(inner, limits, told)
    if options.key is not None:
        app = BearerGuard(app, options.key(), told, (HEALTH,))
    app = OriginGuard(app, options.origins, told)
    any_address = options.host in ANY_ADDRESS
    names = options.names if any_address else (options.host, *options.names)
    app = HostGuard(app, names, told, any_address=any_address)
    fixed = [route.path for route in (health, *routes) if "{" not in route.path]
    return RequestLog(app, told, fixed)


async def _defect(_request: Request, _error: Exception) -> Response:
    """Told before the error goes on to the log."""
    from starlette.responses import Response

    from diffuse_core.adapters.http_server.refusal import DEFECT

    status, headers, body = told(DEFECT)
    response = Response(body, status)
    response.raw_headers = headers
    return response


async def _health(answers: Answers, _request: Request) -> Response:
    """Whether there is a network behind this. It tells no more, since everybody may ask."""
    from starlette.responses import JSONResponse

    try:
        async with asyncio.timeout(HEALTH_S):
            await answers.view()
    except (DiffuseError, TimeoutError):
        reason = "no node of the network answers; it is looked for"
        return JSONResponse({"status": "unreachable", "reason": reason}, 503)
    return JSONResponse({"status": "ok"})
