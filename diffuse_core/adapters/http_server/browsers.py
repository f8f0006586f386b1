"""Keeps web pages out: a browser carries requests of any site to a server on loopback.

By DNS rebinding a page's own name leads to 127.0.0.1, and to the browser this server is then of
the page's origin: the Host header still has that name, and is checked. Any other page's requests
have an Origin, or are such that they change nothing.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from diffuse_core.adapters.http_server.refusal import Refusal, refuse
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from diffuse_core.adapters.http_server.refusal import Headers, Render

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_ASKED_HEADERS = 40
METHODS = b"GET, POST"
EXPOSED = b"x-request-id, retry-after"
KEPT_S = b"600"
"""For a browser to remember what it may send."""

_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([^\s:/@?#\[\]]{1,253}))(?::\d{1,5})?")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")

STRANGE_HOST = Refusal(
    403,
    "the Host header has none of this server's names: ask for it as 127.0.0.1, or start it with "
    "--allow-host NAME",
    "host_not_allowed",
)
STRANGE_ORIGIN = Refusal(
    403,
    "web pages of this origin may not use this server: start it with --allow-origin URL to let "
    "them",
    "origin_not_allowed",
)


def parse_host(text: str) -> str | None:
    """The name or address of a Host header, without its port; None if it is none."""
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    return _same_form(found[1] or found[2].removesuffix("."))


def parse_name(text: str) -> str:
    """A name that Host headers may have, of an option's value.

    Raises:
        UsageError: it is none.
    """
    name = parse_host(text.strip())
    if name is None or "*" in name:
        raise UsageError(f"--allow-host: {text!r} is no name of a host; write e.g. ai.example.org")
    return name


def _same_form(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def parse_origin(text: str) -> str:
    """An origin as browsers write it (RFC 6454): scheme, host, and port unless it is the usual.

    Raises:
        UsageError: it is none.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(rest):
        raise UsageError(
            f"--allow-origin: {text!r} is no origin; write e.g. https://chat.example.org or "
            "http://localhost:3000"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = port in (None, {"http": 80, "https": 443}[parts.scheme])
    return f"{parts.scheme}://{host}" if usual else f"{parts.scheme}://{host}:{port}"


class HostGuard:
    """Refuses requests for a name that is not this server's."""

    def __init__(
        self,
        app: ASGIApp,
        names: Collection[str],
        render: Render,
        *,
        any_address: bool = False,
    ) -> None:
        """`names` beside the local ones; with `any_address` also every numeric address.

        An address as such is safe: rebinding needs a name.
        """
        self._app = app
        self._names = LOCAL_NAMES | {_same_form(name.lower().strip("[]")) for name in names}
        self._render = render
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._is_ours(scope["headers"]):
            await self._app(scope, receive, send)
        else:
            await refuse(send, STRANGE_HOST, self._render)

    def _is_ours(self, headers: Headers) -> bool:
        given = [value for name, value in headers if name == b"host"]
        if len(given) != 1:
            return False
        name = parse_host(given[0].decode("latin-1"))
        if name is None:
            return False
        return name in self._names or (self._any_address and _is_address(name))


class OriginGuard:
    """Refuses what web pages ask, but those of origins that were named, with CORS for them."""

    def __init__(self, app: ASGIApp, origins: Collection[str], render: Render) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._render = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        given = [value for name, value in scope["headers"] if name == b"origin"]
        if not given:
            await self._app(scope, receive, send)
        elif len(given) > 1 or given[0].lower() not in self._origins:
            await refuse(send, STRANGE_ORIGIN, self._render)
        elif scope["method"] == "OPTIONS":
            await _allow(scope["headers"], given[0], send)
        else:
            await self._app(scope, receive, _telling(given[0], send))


def _telling(origin: bytes, send: Send) -> Send:
    """A `send` that lets the browser give the answer to its page."""
    extra = [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"origin"),
    ]

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return told


async def _allow(headers: Headers, origin: bytes, send: Send) -> None:
    """Answer a preflight, which browsers send without the key."""
    asked = [value for name, value in headers if name == b"access-control-request-headers"]
    words = [word.strip() for value in asked for word in value.split(b",")][:MAX_ASKED_HEADERS]
    answer = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", b", ".join(filter(_TOKEN.fullmatch, words))),
        (b"access-control-max-age", KEPT_S),
        (b"vary", b"origin, access-control-request-headers"),
    ]
    if (b"access-control-request-private-network", b"true") in headers:
        answer.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": answer})
    await send({"type": "http.response.body", "body": b""})
