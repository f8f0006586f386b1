"""One HTTP response, sent piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.adapters.openai_server.errors import ApiError, rendered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send

_NO_RETRY = (b"x-should-retry", b"false")
"""The official client heeds it; by itself it would ask again after any 5xx."""


class Reply:
    """The response to one request; what is counted is put into its `state`, for the log."""

    def __init__(self, send: Send, state: dict[str, Any]) -> None:
        self._send = send
        self._state = state
        self.started = False
        """Whether the status was sent."""
        self.streams = False
        """Whether part of a body was sent that is not complete."""

    def count(self, prompt: int, completion: int) -> None:
        """Note how many tokens the prompt and the answer have."""
        self._state["tokens"] = (prompt, completion)

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self.started = True
        message = {"type": "http.response.start", "status": status, "headers": [*headers]}
        await self._send(message)

    async def write(self, data: bytes) -> None:
        """Send part of the body."""
        self.streams = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """Send the last part of the body."""
        self.streams = False
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def json(self, value: object) -> None:
        """Send all of it: an object as JSON."""
        body = msgspec.json.encode(value)
        length = str(len(body)).encode()
        headers = ((b"content-type", b"application/json"), (b"content-length", length))
        await self.start(200, (*headers, (b"cache-control", b"no-store")))
        await self.end(body)

    async def error(self, error: ApiError) -> None:
        """Tell an error: with its status, or in the stream that has begun, which it ends."""
        if self.started:
            await self.end(b"data: " + msgspec.json.encode(error.told()) + b"\n\n")
            return
        status, headers, body = rendered(error)
        hint = () if status < 500 or error.retry_after_s is not None else (_NO_RETRY,)
        await self.start(status, (*headers, *hint))
        await self.end(body)
