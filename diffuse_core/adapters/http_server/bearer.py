"""Who may ask: whoever has the key (RFC 6750), and all to look at paths that are named open."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from diffuse_core.adapters.http_server.refusal import Refusal, refuse

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from diffuse_core.adapters.http_server.refusal import Headers, Render

NO_KEY = Refusal(
    401,
    "no API key was given: send `Authorization: Bearer KEY`; whoever runs this server finds the "
    "key with `diffuse serve --print-key`",
    "invalid_api_key",
)
WRONG_KEY = Refusal(
    401,
    "this is not the API key of this server; whoever runs it finds the key with "
    "`diffuse serve --print-key`",
    "invalid_api_key",
)


class BearerGuard:
    """Lets in requests with the key. Digests are compared, in a time that tells nothing."""

    def __init__(
        self, app: ASGIApp, key: str, render: Render, open_paths: Collection[str] = ()
    ) -> None:
        self._app = app
        self._digest = _digest(key.encode())
        self._render = render
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_open = scope["path"] in self._open and scope["method"] in ("GET", "HEAD")
        problem = None if is_open else self._problem(scope["headers"])
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await refuse(send, problem, self._render)

    def _problem(self, headers: Headers) -> Refusal | None:
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            return NO_KEY
        scheme, _, key = given[0].partition(b" ")
        right = hmac.compare_digest(_digest(key.strip()), self._digest)
        if len(given) > 1 or scheme.lower() != b"bearer" or not right:
            return WRONG_KEY
        return None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
