"""Server-sent events, as the WHATWG's HTML standard has them ("text/event-stream")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.domain.view import Waiting

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.choices import Choices
    from diffuse_core.adapters.openai_server.completion import Completion
    from diffuse_core.adapters.openai_server.limits import ApiLimits
    from diffuse_core.adapters.openai_server.reply import Reply

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
HEARTBEAT = b": waiting\n\n"
DONE = b"data: [DONE]\n\n"


_BREAKS = {
    "\N{LINE SEPARATOR}".encode(): b"\\u2028",
    "\N{PARAGRAPH SEPARATOR}".encode(): b"\\u2029",
    "\N{NEXT LINE}".encode(): b"\\u0085",
}
"""What no standard takes for the end of a line, but clients do that split text in Python."""


def event(data: dict[str, Any]) -> bytes:
    """One event, on one line."""
    line = msgspec.json.encode(data)
    for written, escaped in _BREAKS.items():
        line = line.replace(written, escaped)
    return b"data: " + line + b"\n\n"


def waiting(told: Waiting) -> bytes:
    """A comment that tells what is waited for."""
    layers, seconds = told.lost.slice, told.seconds
    return f": layers {layers} were lost; waiting up to {seconds:.0f} s for a host\n\n".encode()


async def stream(
    completion: Completion, running: Choices, reply: Reply, limits: ApiLimits
) -> None:
    """Tell an answer as it comes.

    The status is sent with what comes first, or after one heartbeat without anything: what fails
    before has a status of its own, and what fails later is told as an event.

    Raises:
        ApiError, DiffuseError: a generation failed.
    """
    while not running.complete:
        told = await running.next(limits.heartbeat_s)
        if not reply.started:
            await reply.start(200, HEADERS)
        if told is None:
            await reply.write(HEARTBEAT)
        elif isinstance(told[1], Waiting):
            await reply.write(waiting(told[1]))
        elif chunks := await completion.chunks(*told):
            await reply.write(b"".join(map(event, chunks)))
    last = b"".join(map(event, completion.last_chunks()))
    reply.count(*completion.counts())
    await reply.end(last + DONE)
