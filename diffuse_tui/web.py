"""The app in a browser on this machine, by `textual-serve`: each tab runs an app of its own."""

from __future__ import annotations

import argparse
import hmac
import logging
import secrets
import shlex
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from diffuse_core.errors import DiffuseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"
PORT = 8000
_EXTRA = "the app in a browser needs an extra: pip install 'diffuse-tui[web]'"


class Door(NamedTuple):
    """Who may come in: pages of this server, opened with its key. Others could drive the app."""

    port: int
    key: str

    @property
    def url(self) -> str:
        """What to open."""
        return f"http://{HOST}:{self.port}/?key={self.key}"

    @property
    def cookie(self) -> str:
        """Browsers share cookies between ports, so the name tells this one."""
        return f"diffuse-{self.port}"

    def admits(self, host: str, origin: str | None, given: str) -> bool:
        """Whether a request may be answered.

        Args:
            host: Whom the browser believes to talk to; another name means a rebound address.
            origin: The page the request comes from, if the browser says so.
            given: The key, from the address or the cookie.
        """
        here = f"{HOST}:{self.port}"
        known = host == here and origin in (None, f"http://{here}")
        return known and hmac.compare_digest(given.encode(), self.key.encode())


def serve(arguments: list[str]) -> int:
    """Serve until Ctrl+C; the exit status. Other options are those of the app in each tab."""
    parser = argparse.ArgumentParser("diffuse-tui web", add_help=False)
    parser.add_argument("--port", type=int, choices=range(1, 65536), default=PORT, metavar="PORT")
    given, rest = parser.parse_known_args(arguments)
    try:
        if "demo" in rest[:1]:
            raise UsageError("every tab would start a demo; start hosts first, then `web attach`")
        server = _server(Door(given.port, secrets.token_urlsafe(24)), rest)
        server.serve()
    except OSError as error:
        sys.stderr.write(f"diffuse-tui: cannot serve on port {given.port}: {error}; try --port\n")
        return 1
    except DiffuseError as error:
        sys.stderr.write(f"diffuse-tui: {error}\n")
        return error.exit_code
    return 0


def _server(door: Door, rest: list[str]) -> Any:
    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError:
        raise UsageError(_EXTRA) from None

    async def guard(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        key = request.query.get("key") or request.cookies.get(door.cookie, "")
        if not door.admits(request.host, request.headers.get("Origin"), key):
            raise web.HTTPForbidden(text="Open the address that `diffuse-tui web` printed.")
        response = await handler(request)
        if not response.prepared:
            response.set_cookie(door.cookie, door.key, httponly=True, samesite="Strict")
        return response

    class LocalServer(Server):  # type: ignore[misc]
        def initialize_logging(self) -> None:
            # Not the requests, as their addresses hold the key.
            logging.basicConfig(level=logging.WARNING)

        async def _make_app(self) -> Any:
            app = await super()._make_app()
            app.middlewares.append(web.middleware(guard))
            return app

        async def on_startup(self, app: Any) -> None:
            sys.stdout.write(f"Open {door.url}\n(on this machine only; Ctrl+C ends it)\n")
            sys.stdout.flush()

    command = shlex.join([sys.executable, "-P", "-m", "diffuse_tui", *rest])
    return LocalServer(
        command, HOST, door.port, title="Diffuse", public_url=f"http://{HOST}:{door.port}"
    )
