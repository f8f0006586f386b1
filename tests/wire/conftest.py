from __future__ import annotations

from tests.services.conftest import short_waits, split, stack, tiny

__all__ = ["short_waits", "split", "stack", "tiny"]
