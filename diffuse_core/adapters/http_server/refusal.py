"""Refusals: what a client is told that gets no answer, in whatever shape the API has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.defects import place_of_defect

if TYPE_CHECKING:
    from starlette.types import Send

log = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Refusal:
    """A status and a sentence with the cause and the next step; `code` is a word for programs."""

    status: int
    message: str
    code: str | None = None
    retry_after_s: int | None = None


Render = Callable[[Refusal], tuple[int, Headers, bytes]]
"""Status, headers and body that tell a refusal; the headers have the body's length."""


def plain(refusal: Refusal) -> tuple[int, Headers, bytes]:
    """A refusal as one line of text."""
    body = f"{refusal.message}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
    return refusal.status, headers, body


async def refuse(
    send: Send, refusal: Refusal, render: Render, extra: Headers | None = None
) -> None:
    """Answer a request with a refusal."""
    status, headers, body = render(refusal)
    headers = [*headers, *(extra or ())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def log_defect(what: str, error: BaseException) -> None:
    """Log where `what` failed."""
    log.error("%s failed: %s", what, place_of_defect(error))


DEFECT = Refusal(
    500,
    "this server met a defect of its own; its log has the place. Ask again, or report it",
    "internal_error",
)
ENDING = Refusal(
    503, "this server is ending; ask again when it runs", "unavailable", retry_after_s=5
)
FULL = Refusal(
    503, "this server has all the connections it takes; ask again", "unavailable", retry_after_s=1
)
