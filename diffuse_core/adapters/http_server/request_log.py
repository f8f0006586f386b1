"""Request ids, one log line for each request, and an answer also where the app fails.

What clients send is not logged: no query, header or body, of the path only the template that it
matched, and of an error only its place.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.http_server.refusal import DEFECT, log_defect, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from diffuse_core.adapters.http_server.refusal import Render

log = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PLAIN_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")


def fresh_id() -> bytes:
    """An id for a request that brought none."""
    return b"req_" + secrets.token_hex(12).encode()


class RequestLog:
    """Outermost of the guards. The app may put `tokens`, (prompt, completion), into the state."""

    def __init__(
        self,
        app: ASGIApp,
        render: Render,
        paths: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`paths` are those that may be logged also where nothing was routed."""
        self._app = app
        self._render = render
        self._paths = frozenset(paths)
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        given = [value for name, value in scope["headers"] if name == REQUEST_ID]
        known = len(given) == 1 and _PLAIN_ID.fullmatch(given[0])
        mark = given[0] if known else fresh_id()
        state = scope.setdefault("state", {})
        state["request_id"] = mark.decode()
        status = 0

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                others = [one for one in message.get("headers", ()) if one[0] != REQUEST_ID]
                message = {**message, "headers": [*others, (REQUEST_ID, mark)]}
            await send(message)

        started = self._now()
        try:
            await self._app(scope, receive, marked)
        except Exception as error:
            if status:
                raise
            log_defect(f"request {state['request_id']}", error)
            await refuse(marked, DEFECT, self._render)
        finally:
            self._tell(scope, status, self._now() - started, state)

    def _tell(self, scope: Scope, status: int, seconds: float, state: dict[str, Any]) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        path, mark = self._template(scope), state["request_id"]
        figures = {
            "method": method,
            "path": path,
            # None: the client went before it got one.
            "status": status or None,
            "seconds": round(seconds, 3),
            "request": mark,
        }
        text = ""
        match state.get("tokens"):
            case (int(prompt), int(completion)):
                figures |= {"prompt_tokens": prompt, "completion_tokens": completion}
                text = f", {prompt} + {completion} tokens"
            case _:
                pass
        told = status or "unanswered"
        line = "%s %s %s in %.3f s, request %s%s"
        log.info(line, method, path, told, seconds, mark, text, extra=figures)

    def _template(self, scope: Scope) -> str:
        """The template of the route that was taken; a dash where none was."""
        template = getattr(scope.get("route"), "path", None)
        if isinstance(template, str):
            return template
        return scope["path"] if scope["path"] in self._paths else "-"
