"""One HTTP/1.1 connection: uvicorn's protocol over h11, with the deadlines that it lacks.

uvicorn closes a connection that is idle between requests and bounds incomplete headers. It waits
forever for a head that comes a byte an hour (slowloris), for a body that stalls, and for a reader
who takes nothing; and it logs what clients send. So the protocol is completed here. It is in
uvicorn's documented place for it, but its attributes are not promised: the tests of this package
fail where a version changes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from diffuse_core.adapters.http_server.refusal import (
    DEFECT,
    ENDING,
    FULL,
    Refusal,
    log_defect,
)
from diffuse_core.adapters.http_server.request_log import REQUEST_ID, fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.config import Config
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from diffuse_core.adapters.http_server.limits import HttpLimits
    from diffuse_core.adapters.http_server.refusal import Headers, Render

log = logging.getLogger(__name__)

Phase = Literal["head", "body", "lingering", "answering", "draining", "idle", "closing"]
SPARE: tuple[Phase, ...] = ("lingering", "idle", "head")
"""Which connections give way to a new one, in this order."""
CLOSE = (b"connection", b"close")
SEND_BUFFER = 64 * 2**10
"""Of the kernel. It grows to megabytes by itself, and hides from us who reads nothing."""


class _Parting(asyncio.Transport):
    """What a request's answer is written to. uvicorn closes it after the last one."""

    def __init__(self, transport: asyncio.Transport, part: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._part = part

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self._transport.write(data)

    def close(self) -> None:
        """Leave the end to the connection."""
        self._part()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()


class BoundedProtocol(H11Protocol):
    """A connection that ends by itself in every case. Whoever owns it calls `look` regularly."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: HttpLimits,
        render: Render,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, state, {}, loop)
        self.access_log = False
        self._limits = limits
        self._render = render
        self._wrapped: ASGIApp = self.app
        self.app = self._contained
        self._task: asyncio.Task[Any] | None = None
        self._left = False
        self._steps = 0
        self._seen: tuple[object, ...] = ()
        self._since = loop.time()
        self._request: tuple[object, ...] = ()
        self._request_since = self._since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; where there are too many one of them gives way, or this one."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self._limits.write_bytes)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        if len(self.connections) > self._limits.connections and not self._make_room():
            self._hang_up(FULL)
            # There may be many of these: none of them gets to linger.
            self.transport.close()

    def _make_room(self) -> bool:
        """Cut the connection that is the least loss: nothing is asked or answered on it.

        Whoever means to ask does so at once, so many that do not keep nobody out.
        """
        others = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        spare = [one for one in others if one is not self and one.phase in SPARE]
        if not spare:
            return False
        min(spare, key=lambda one: (SPARE.index(one.phase), one._since)).transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the app, and see that it ends what it did for this client."""
        super().connection_lost(exc)
        task = self._task
        if task is not None and not task.done():
            self.loop.call_later(self._limits.abandoned_s, task.cancel)

    def data_received(self, data: bytes) -> None:
        """Take what came; whatever is wrong with it ends this connection and nothing else."""
        if self._left:
            return
        if self._unanswered is not None:
            # Of a body that is awaited; of one that was refused it would prolong the end.
            self._steps += 1
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001  (asyncio would log it, with what was sent)
            log_defect("a connection", error)
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Go on with the next request; how long that may take is for `look` to say."""
        self._steps += 1
        super().on_response_complete()
        self._unset_keepalive_if_required()

    def resume_writing(self) -> None:
        """The reader took something."""
        self._steps += 1
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP request. Its text is not repeated anywhere."""
        log.debug("a client sent what is no HTTP request")
        if len(self.conn.trailing_data[0]) > self._limits.head_bytes:
            self._hang_up(self._large_head())
        else:
            self._hang_up(Refusal(400, "this is no sound HTTP/1.1 request", "invalid_request"))

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade that is not offered is ignored, as RFC 9110 (7.8) has it."""

    def shutdown(self) -> None:
        """Take no further request; close at once if none is being answered."""
        if self._left:
            return
        if (cycle := self._unanswered) is None:
            self.transport.close()
        else:
            cycle.keep_alive = False

    @property
    def _unanswered(self) -> RequestResponseCycle | None:
        """The request that is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    @property
    def phase(self) -> Phase:
        """What this connection waits for."""
        if self.transport.is_closing():
            return "closing"
        if self._left:
            return "lingering"
        if self.flow.write_paused:
            return "draining"
        answered = self._unanswered is None
        if self.conn.their_state is h11.SEND_BODY:
            if answered:
                return "lingering"
            return "answering" if self.flow.read_paused else "body"
        if not answered:
            return "answering"
        # Each answer that was given is a step.
        return "head" if not self._steps or self.conn.trailing_data[0] else "idle"

    def look(self, now: float) -> None:
        """End this connection if it has waited too long; `now` is the loop's time."""
        phase = self.phase
        if (phase, self.cycle) != self._request:
            self._request, self._request_since = (phase, self.cycle), now
        if (phase, self._steps) != self._seen:
            self._seen, self._since = (phase, self._steps), now
        waited = now - self._since
        limits = self._limits
        match phase:
            case "head" if waited >= limits.head_s:
                self._hang_up(_late("headers"))
            case "body" if waited >= limits.stall_s or now - self._request_since >= limits.body_s:
                self._hang_up(_late("body"))
            case "lingering" if waited >= limits.linger_s:
                self.transport.close()
            case "idle" if waited >= limits.idle_s:
                self.transport.close()
            case "draining" | "closing" if waited >= limits.drain_s:
                log.info("a reader took nothing for %.0f s; its connection was cut", waited)
                self.transport.abort()
            case _:
                pass

    def _hang_up(self, refusal: Refusal) -> None:
        """Tell a refusal if that is still possible, and close the connection."""
        mark = fresh_id()
        if (cycle := self._unanswered) is not None:
            mark = cycle.scope["state"].get("request_id", "").encode() or mark
            # What the app still sends goes nowhere, and it is told so.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                # Without the end of its body, so that the client sees that it is not whole.
                self.transport.close()
                return
        status, headers, body = self._render(refusal)
        if cycle is not None and cycle.scope["method"] == "HEAD":
            body = b""
        answer = h11.Response(
            status_code=status,
            headers=[*headers, (REQUEST_ID, mark), CLOSE],
            reason=STATUS_PHRASES.get(status, b""),
        )
        with contextlib.suppress(h11.LocalProtocolError):
            events = (answer, h11.Data(data=body), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self._leave()

    def _part(self) -> None:
        """End a connection that is not kept; who still sends a body gets to read the answer."""
        if self.conn.their_state is h11.SEND_BODY:
            self._leave()
        else:
            self.transport.close()

    def _leave(self) -> None:
        """Close our side; theirs a little later, else what they still send resets both."""
        self._left = True
        self.flow.resume_reading()
        with contextlib.suppress(OSError):
            self.transport.write_eof()

    async def _contained(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app. Nothing that it raises reaches uvicorn, which would log its text."""
        cycle = self.cycle
        self._task = asyncio.current_task()
        if (problem := self._unsound(scope)) is not None:
            self._hang_up(problem)
            return
        cycle.transport = _Parting(self.transport, self._part)
        try:
            await self._wrapped(scope, receive, send)
        except asyncio.CancelledError:
            self._end(cycle, ENDING)
        except Exception as error:  # noqa: BLE001  (see above)
            if not cycle.disconnected:
                log_defect("a request", error)
            self._end(cycle, DEFECT)

    def _end(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        if not cycle.response_complete and not cycle.disconnected:
            self._hang_up(refusal)

    def _unsound(self, scope: Scope) -> Refusal | None:
        """What is wrong with a head that h11 let through."""
        headers: Headers = scope["headers"]
        if scope["http_version"] not in ("1.0", "1.1"):
            return Refusal(505, "this server speaks HTTP/1.1; ask in that", "invalid_request")
        names = [name for name, _ in headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            # RFC 9112 (6.1): who stands between may see another end of the request than we do.
            return Refusal(
                400, "give content-length or transfer-encoding, not both", "invalid_request"
            )
        target = len(scope["raw_path"]) + len(scope["query_string"])
        size = target + sum(len(name) + len(value) + 4 for name, value in headers)
        if len(headers) > self._limits.headers or size > self._limits.head_bytes:
            return self._large_head()
        return None

    def _large_head(self) -> Refusal:
        most = f"{self._limits.headers} headers, with the path {self._limits.head_bytes} bytes"
        return Refusal(431, f"the headers are too large; send at most {most}", "headers_too_large")


def _late(what: str) -> Refusal:
    return Refusal(408, f"the request's {what} did not come in time; ask again", "request_timeout")
