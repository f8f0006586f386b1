"""Messages that have begun to arrive: what they hold in memory, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from websockets.asyncio.connection import Connection

MAX_UNFINISHED_BYTES = 256 * 2**20
"""Of all connections of a node together."""
GRACE_S = 20.0
MIN_BYTES_PER_S = 64 * 2**10
"""What a message must bring on the average once it takes longer than GRACE_S."""
LOOK_S = 2.0


class Unfinished:
    """Ends connections that begin messages and do not finish them.

    A node reads its links whatever comes, so that who sends the first part of a large message and
    no more would have the node keep it for ever, for the price of sending it once.
    """

    def __init__(self, most: int = MAX_UNFINISHED_BYTES) -> None:
        self._most = most
        self._held: dict[Connection, tuple[int, float]] = {}
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
        before, since = self._held.pop(connection, (0, now))
        self._total += size - before
        if not size:
            return
        self._held[connection] = size, now if finished else since
        while self._total > self._most:
            self._drop(max(self._held, key=lambda one: self._cost(one, now)))
        if self._timer is None:
            self._timer = connection.loop.call_later(LOOK_S, self._look, connection.loop)

    def forget(self, connection: Connection) -> None:
        """It is gone."""
        self._total -= self._held.pop(connection, (0, 0.0))[0]

    def _cost(self, connection: Connection, now: float) -> tuple[float, int]:
        # Not the largest alone: many that each keep a little would have every honest large
        # message thrown out, which is through in a moment.
        size, since = self._held[connection]
        return size * (now - since), size

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection, (size, since) in tuple(self._held.items()):
            if connection.recv_messages.paused:
                # It is we who do not read.
                self._held[connection] = size, now
            elif now - since > GRACE_S and size < (now - since) * MIN_BYTES_PER_S:
                self._drop(connection)
        self._timer = loop.call_later(LOOK_S, self._look, loop) if self._held else None

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.transport.abort()
