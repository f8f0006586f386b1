"""Server-sent events, as the WHATWG's HTML standard has them ("text/event-stream")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

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


def event(data: dict[str, Any]) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def stream(
    completion: Completion, running: Choices, reply: Reply, limits: ApiLimits
) -> None:
    """Tell an answer as it comes.

    The status is sent with what comes first, or after one heartbeat without anything: what fails
    before has a status of its own, and what fails later is told as an event.

    Raises:
        ApiError, DiffuseError: a generation failed.
        SlowClientError: the client takes nothing any more.
    """
    while not running.complete:
        told = await running.next(limits.heartbeat_s)
        if not reply.started:
            await reply.start(200, HEADERS)
        if told is None:
            await reply.write(HEARTBEAT)
        elif chunks := await completion.chunks(*told):
            await reply.write(b"".join(map(event, chunks)))
    last = b"".join(map(event, completion.last_chunks()))
    reply.count(*completion.counts())
    await reply.end(last + DONE)
