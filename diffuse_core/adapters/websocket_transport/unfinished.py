"""Messages that have begun to arrive: what they hold in memory, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from websockets.asyncio.connection import Connection

MAX_UNFINISHED_BYTES = 256 * 2**20
"""Of all connections of a node together."""
GRACE_S = 20.0
MIN_BYTES_PER_S = 64 * 2**10
"""What a message that takes longer than GRACE_S must bring on the average of each such time."""
LOOK_S = 2.0


@dataclass(slots=True)
class _Message:
    """Bytes held and since when; and when it was last seen to get on, and at how many."""

    size: int
    begun: float
    marked: float
    size_then: int = 0


class Unfinished:
    """Ends connections that begin messages and do not finish them.

    A node reads its links whatever comes, so that who sends the first part of a large message and
    no more would have the node keep it for ever, for the price of sending it once.
    """

    def __init__(self, most: int = MAX_UNFINISHED_BYTES) -> None:
        self._most = most
        self._held: dict[Connection, _Message] = {}
        self._total = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def total(self) -> int:
        """Bytes of all of them."""
        return self._total

    def note(self, connection: Connection, size: int, *, finished: bool) -> None:
        """The newest message of a connection has so many bytes up to now.

        Args:
            connection: where it comes from.
            size: bytes held of a message that is not complete; 0 when there is none.
            finished: some message became complete since the last call.
        """
        now = connection.loop.time()
        message = self._held.get(connection)
        self._total += size - (message.size if message else 0)
        if not size:
            self._held.pop(connection, None)
            return
        if message is None or finished:
            message = self._held[connection] = _Message(size, now, now)
        message.size = size
        while self._total > self._most:
            self._drop(max(self._held, key=lambda one: self._cost(one, now)))
        if self._timer is None:
            self._timer = connection.loop.call_later(LOOK_S, self._look, connection.loop)

    def forget(self, connection: Connection) -> None:
        """It is gone."""
        if (message := self._held.pop(connection, None)) is not None:
            self._total -= message.size

    def _cost(self, connection: Connection, now: float) -> tuple[float, int]:
        # Not the largest alone: many that each keep a little would have every honest large
        # message thrown out, which is through in a moment.
        message = self._held[connection]
        return message.size * (now - message.begun), message.size

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection, message in tuple(self._held.items()):
            if connection.recv_messages.paused:
                # It is we who do not read.
                message.marked, message.size_then = now, message.size
            elif (waited := now - message.marked) > GRACE_S:
                if message.size - message.size_then < waited * MIN_BYTES_PER_S:
                    self._drop(connection)
                message.marked, message.size_then = now, message.size
        self._timer = loop.call_later(LOOK_S, self._look, loop) if self._held else None

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.transport.abort()
