"""Hears which stages run the answers of this process, from what its clients send."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.messages import ForwardTokens, Hop, OpenSession, Reroute
from diffuse_core.services.links import Link

if TYPE_CHECKING:
    from collections.abc import Iterator


class RouteWatch:
    """The newest route that was opened, and whether tokens were sent since."""

    def __init__(self) -> None:
        self.route: tuple[Hop, ...] = ()
        self.fed = asyncio.Event()

    def saw(self, message: Any) -> None:
        """Something is sent."""
        if isinstance(message, (OpenSession, Reroute)):
            self.route = message.route
        elif isinstance(message, ForwardTokens):
            self.fed.set()


@contextlib.contextmanager
def watching_routes() -> Iterator[RouteWatch]:
    """Watch what is sent over every link of this process."""
    watch, send = RouteWatch(), Link.send

    async def sending(link: Link, message: Any, body: bytes | memoryview = b"") -> None:
        watch.saw(message)
        await send(link, message, body)

    Link.send = sending  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        Link.send = send  # type: ignore[method-assign]
