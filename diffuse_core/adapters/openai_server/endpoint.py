"""An endpoint: reads the body, tells errors, and stops at once when the client is gone.

The server in front settles how large and how slow bodies and readers may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from diffuse_core.adapters.openai_server.errors import ApiError, defect, ending, told_to_clients
from diffuse_core.adapters.openai_server.reply import Reply
from diffuse_core.defects import place_of_defect
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)

LAST_WORD_S = 1.0
"""For the end of a stream to be sent when the server ends."""


class Handler(Protocol):
    """Answers a request, with its path's parameters and its body, by what it sends."""

    async def __call__(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """Raises ApiError and DiffuseError."""
        ...


class Endpoint:
    """An ASGI application for one path."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Ends soon after the client has gone, whatever was going on."""
        reply = Reply(send, scope.setdefault("state", {}))
        body = b"" if scope["method"] in ("GET", "HEAD") else await _body(receive)
        if body is None:
            return
        path: dict[str, str] = scope.get("path_params", {})
        answering = asyncio.create_task(self._answer(path, body, reply))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # From here on it sends nothing more.
            answering.cancel()
            await _last_word(reply)
            raise
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        try:
            await self._handler(path, body, reply)
        except ApiError as error:
            await reply.error(error)
        except DiffuseError as error:
            await reply.error(told_to_clients(error))
        except Exception as error:  # noqa: BLE001 - nothing but its place may be told
            _log.error("a defect of the API: %s", place_of_defect(error))
            await reply.error(defect())


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None where the client goes before its end."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _last_word(reply: Reply) -> None:
    """Tell in a stream that the server ends, so that nobody takes it for whole."""
    if reply.streams:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await reply.error(ending())
