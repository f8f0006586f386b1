"""What one HTTP server takes on: every count, size and wait has a bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HttpLimits:
    """Bounds of a server. Sizes in bytes, times in seconds.

    A connection that is not within them is closed; a request that is not is refused.
    """

    connections: int = 256
    """Open at a time; one more takes the place of an idle one, or is refused."""
    head_bytes: int = 32 * 2**10
    headers: int = 100
    head_s: float = 10.0
    """From the first byte, or the connection, to the end of a request's headers."""
    body_bytes: int = 8 * 2**20
    bodies_bytes: int = 64 * 2**20
    """Of all bodies that are being received or worked on."""
    json_depth: int = 64
    json_values: int = 50_000
    stall_s: float = 10.0
    """Without a byte of a body that is awaited."""
    body_s: float = 60.0
    """For a whole body, however steadily it trickles."""
    idle_s: float = 75.0
    """Between two requests on a connection."""
    drain_s: float = 30.0
    """For a reader who takes nothing of what was sent."""
    write_bytes: int = 64 * 2**10
    """That wait to be sent before an answer waits for its reader."""
    linger_s: float = 2.0
    """For the rest of a body that was refused, so that its sender gets to read why."""
    abandoned_s: float = 5.0
    """For an answer whose reader has gone to end by itself."""
    grace_s: float = 5.0
    """For answers that are being given when the server ends."""

    @property
    def look_s(self) -> float:
        """How often connections are looked at: often enough for the shortest of the waits."""
        waits = (self.head_s, self.stall_s, self.idle_s, self.drain_s, self.linger_s)
        return min(1.0, min(waits) / 4)
