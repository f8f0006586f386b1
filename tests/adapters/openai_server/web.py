"""A client of ASGI applications: sees every message, and can go away."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from diffuse_core.adapters.openai_server import ApiLimits, http_error, openai_routes
from diffuse_core.adapters.system_clock import SystemClock

if TYPE_CHECKING:
    from diffuse_core.ports import Answers

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


@dataclass
class Told:
    """What came of a request so far."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    complete: bool = False
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """All of the body."""
        return b"".join(self.parts)

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error that it tells."""
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    def lines(self) -> list[str]:
        """Events and comments of a stream."""
        return self.body.decode().split("\n\n")[:-1]

    def chunks(self) -> list[dict[str, Any]]:
        """The JSON of a stream's events."""
        lines = [line.removeprefix("data: ") for line in self.lines() if line[:1] != ":"]
        return [json.loads(line) for line in lines if line != "[DONE]"]


class Web:
    """The API's routes in an application, and requests to it."""

    def __init__(self, answers: Answers, limits: ApiLimits | None = None) -> None:
        routes = openai_routes(answers, limits or ApiLimits(), SystemClock())
        self.app = Starlette(routes=routes, exception_handlers={HTTPException: http_error})

    async def post(self, path: str, body: object, told: Told | None = None) -> Told:
        """Send a body (bytes as they are) and hear the answer to its end."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask("POST", path, data, told or Told())

    async def chat(self, **fields: Any) -> Told:
        """Ask for a chat completion of a model that is there."""
        return await self.post(CHAT, {"model": "tiny", "messages": MESSAGES, **fields})

    async def text(self, **fields: Any) -> Told:
        """Ask for a text completion of a model that is there."""
        return await self.post(TEXT, {"model": "tiny", "prompt": "Once", **fields})

    async def get(self, path: str) -> Told:
        """Get a path."""
        return await self.ask("GET", path, b"", Told())

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        told: Told,
        leave: asyncio.Event | None = None,
        stuck: asyncio.Event | None = None,
    ) -> Told:
        """Hear the answer; the client goes when `leave` is set, and takes nothing if `stuck`."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "state": told.state,
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        leave = leave or asyncio.Event()
        # In two parts, as servers give it.
        sent = [body[:10], body[10:]]

        async def receive() -> dict[str, Any]:
            if sent:
                return {"type": "http.request", "body": sent.pop(0), "more_body": bool(sent)}
            await leave.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if stuck is not None:
                await stuck.wait()
            if message["type"] == "http.response.start":
                assert not told.status
                told.status = message["status"]
                told.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                assert told.status
                assert not told.complete
                told.parts.append(message["body"])
                told.complete = not message.get("more_body", False)

        await self.app(scope, receive, send)
        return told
