"""Bodies: JSON only, of a bounded size, depth and number of values, whole before the app runs.

A form that a foreign page posts cannot say `application/json` without the browser asking us
first; so this also is what keeps such pages out where there is no key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.adapters.http_server.refusal import Refusal, refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from diffuse_core.adapters.http_server.limits import HttpLimits
    from diffuse_core.adapters.http_server.refusal import Headers, Render

WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
NOT_JSON = Refusal(
    415, "send JSON, with the header `Content-Type: application/json`", "unsupported_media_type"
)
CODED = Refusal(415, "send the body as it is, without Content-Encoding", "unsupported_media_type")
CROWDED = Refusal(
    503, "too many large requests at a time; ask again", "unavailable", retry_after_s=1
)
_PIECES_A_VALUE = 5
"""Most of them that a value has in JSON: its key, itself or its two ends, a comma."""
# Possessive: a string of a million escapes must not make a million places to go back to.
_PIECES = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]|,', re.DOTALL)


def json_problem(data: bytes, depth: int, values: int) -> str | None:
    """Why a JSON text is not to be decoded: nested deeper than `depth`, or over `values` values.

    It need not be JSON otherwise; whoever decodes it finds that out.
    """
    openers = data.count(b"[") + data.count(b"{")
    # Mostly what it has of these outside and inside of strings together is little enough.
    if openers <= depth and openers + data.count(b",") < values:
        return None
    level = count = 0
    for at, piece in enumerate(_PIECES.finditer(data)):
        match data[piece.start()]:
            case 0x5B | 0x7B:
                level += 1
                count += 1
            case 0x5D | 0x7D:
                level -= 1
            case 0x2C:
                count += 1
            case _:
                pass
        if level > depth:
            return f"it is nested more than {depth} levels deep; nest less"
        if count >= values or at > _PIECES_A_VALUE * values:
            return f"it has more than {values} values; send less"
    return None


class JsonGuard:
    """Receives the body, and gives it to the app in one piece."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, render: Render) -> None:
        self._app = app
        self._limits = limits
        self._render = render
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] not in WITH_BODY:
            await self._app(scope, receive, send)
            return
        problem = self._unfit(scope["headers"])
        held = 0
        try:
            pieces: list[bytes] = []
            more = problem is None
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                piece = message.get("body", b"")
                held += len(piece)
                self._held += len(piece)
                if (problem := self._too_much(held)) is not None:
                    break
                pieces.append(piece)
                more = message.get("more_body", False)
            body = b"".join(pieces)
            del pieces
            problem = problem or self._unsound(body)
            if problem is not None:
                await refuse(send, problem, self._render)
            else:
                await self._app(scope, _replaying(body, receive), send)
        finally:
            self._held -= held

    def _unfit(self, headers: Headers) -> Refusal | None:
        """What the headers tell of the body that cannot be."""
        kinds = [value for name, value in headers if name == b"content-type"]
        codings = [value for name, value in headers if name == b"content-encoding"]
        length = next((value for name, value in headers if name == b"content-length"), b"0")
        if len(kinds) != 1 or kinds[0].partition(b";")[0].strip().lower() != b"application/json":
            return NOT_JSON
        if any(coding.strip().lower() not in (b"", b"identity") for coding in codings):
            return CODED
        return self._too_large() if int(length) > self._limits.body_bytes else None

    def _too_much(self, held: int) -> Refusal | None:
        if held > self._limits.body_bytes:
            return self._too_large()
        return CROWDED if self._held > self._limits.bodies_bytes else None

    def _too_large(self) -> Refusal:
        most = self._limits.body_bytes
        message = f"the body is larger than {most} bytes; send less"
        return Refusal(413, message, "request_too_large")

    def _unsound(self, body: bytes) -> Refusal | None:
        problem = json_problem(body, self._limits.json_depth, self._limits.json_values)
        return None if problem is None else Refusal(400, f"the body: {problem}", "invalid_json")


def _replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that has the body first; then whatever comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
