"""Whether the system says that its clock is set by others."""

from __future__ import annotations

import ctypes
import sys

TIMEX_BYTES = 512
"""More than `struct timex` has on any Linux; all zero it asks, and sets nothing."""
TIME_ERROR = 5


def synchronised() -> bool | None:
    """What the kernel holds its clock for (adjtimex(2)); None where it does not say.

    In a container it is the machine's clock that is told of.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        ask = ctypes.CDLL(None).adjtimex
        state = int(ask(ctypes.create_string_buffer(TIMEX_BYTES)))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != TIME_ERROR
