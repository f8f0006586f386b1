"""Members: nodes as this node believes them to be, from signed records and liveness."""

from __future__ import annotations

import msgspec

from diffuse_core.domain.records import Record
from diffuse_core.domain.view import Liveness


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that published a record.

    `heard_at` is the monotonic time of the last sign of life. `rtt_s` is the smoothed round trip
    of direct pings in seconds, `least_rtt_s` the shortest of the latest, None when there was none
    yet. `distance_s` is the round trip that coordinates tell, None where one of the two nodes has
    none.
    """

    record: Record
    liveness: Liveness
    heard_at: float
    rtt_s: float | None = None
    least_rtt_s: float | None = None
    distance_s: float | None = None

    @property
    def live(self) -> bool:
        """Whether it counts: a suspect does until it is found dead."""
        return self.liveness != "dead"
