"""What takes a moment to measure, asked for in a thread so that nothing waits for it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from diffuse_core.ports import SensorSample

if TYPE_CHECKING:
    from diffuse_core.ports import Clock, Sensors

log = logging.getLogger(__name__)

LOOK_S = 1.0
OVERDUE_S = 5.0
"""A driver that has not answered for so long hangs: what it told before is old."""


class Sensing:
    """Keeps what the sensors told last. Nobody asks them unless `latest` is called."""

    def __init__(self, sensors: Sensors | None, clock: Clock) -> None:
        self._sensors = sensors
        self._clock = clock
        self._sample = SensorSample()
        self._asked_at: float | None = None
        self._asking: threading.Thread | None = None

    def latest(self) -> SensorSample:
        """What is known now; nothing at first, and while the sensors do not answer.

        Has them asked anew, at most once in LOOK_S and never twice at once.
        """
        now = self._clock.monotonic()
        since = None if self._asked_at is None else now - self._asked_at
        if self._asking is not None and self._asking.is_alive():
            return SensorSample() if since is not None and since > OVERDUE_S else self._sample
        if self._sensors is not None and (since is None or since >= LOOK_S):
            self._asked_at = now
            # A daemon: a process must be able to end while a driver hangs.
            self._asking = threading.Thread(
                target=self._ask, args=(self._sensors,), name="sensors", daemon=True
            )
            self._asking.start()
        return self._sample

    def _ask(self, sensors: Sensors) -> None:
        try:
            self._sample = sensors.sample()
        except Exception:
            log.exception("the sensors of this machine cannot be read")
            self._sample = SensorSample()
