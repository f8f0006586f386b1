"""An endpoint: reads the body, tells errors, and stops at once when the client is gone."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Protocol

from diffuse_core.adapters.openai_server.errors import ApiError, defect, told_to_clients
from diffuse_core.adapters.openai_server.reply import Reply, SlowClientError
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from diffuse_core.adapters.openai_server.limits import ApiLimits

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """Answers a request, with its path's parameters and its body, by what it sends."""

    async def __call__(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        """Raises ApiError, DiffuseError and SlowClientError."""
        ...


class _GoneError(Exception):
    """The client went before its request was here."""


class Endpoint:
    """An ASGI application for one path."""

    def __init__(self, handler: Handler, limits: ApiLimits) -> None:
        self._handler = handler
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Ends soon after the client has gone, whatever was going on."""
        reply = Reply(send, self._limits.write_s, scope.setdefault("state", {}))
        try:
            body = await self._body(receive)
        except ApiError as error:
            await reply.error(error)
            return
        except _GoneError:
            return
        path: dict[str, str] = scope.get("path_params", {})
        answering = asyncio.create_task(self._answer(path, body, reply))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        try:
            await self._told(path, body, reply)
        except SlowClientError:
            _log.info("a client takes its answer no more: given up")

    async def _told(self, path: dict[str, str], body: bytes, reply: Reply) -> None:
        try:
            await self._handler(path, body, reply)
        except ApiError as error:
            await reply.error(error)
        except DiffuseError as error:
            await reply.error(told_to_clients(error))
        except SlowClientError:
            raise
        except Exception as error:  # noqa: BLE001 - nothing but its place may be told
            _log.error("a defect of the API: %s", _place(error))
            await reply.error(defect())

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(408, "the body did not come in time; send it at once") from None

    def _too_large(self) -> ApiError:
        most = self._limits.body_bytes
        return ApiError(413, f"the body has more than {most} bytes; send a shorter one")


async def _left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _place(error: Exception) -> str:
    """Where an error arose. What it says is not told: it may hold a prompt."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[-6:])
    return f"{type(error).__name__} at {lines}"
