"""The end of a node here that its owner asked for: how long it may take, when it is over."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused
from diffuse_core.services.placement import STOP_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psutil

GONE_S = 20.0
"""For a node to end once its Sessions are over."""
POLL_S = 0.05


def process_of(pid: int) -> psutil.Process | None:
    """The process of this number, which is told from later ones that get it; None for none."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid)
    return None


def usual_patience(patience: float | None) -> float:
    """How many seconds Sessions may take; None is for the node's usual time."""
    return STOP_S if patience is None else patience


@contextlib.asynccontextmanager
async def in_time(pid: int, patience: float | None) -> AsyncIterator[None]:
    """Limit what waits for the end of the node that is process `pid`.

    Raises:
        Refused: it took longer than its Sessions may, and then some.
    """
    limit = usual_patience(patience) + GONE_S
    try:
        async with asyncio.timeout(limit):
            yield
    except TimeoutError:
        raise Refused(
            f"the node (pid {pid}) did not end within {limit:.0f} s; look at its log, or "
            f"end it with: kill {pid}",
            "busy",
        ) from None


async def gone(process: psutil.Process | None) -> None:
    """Wait until a process is gone; one that its parent has not looked at yet is."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        while process is not None and process.is_running():
            if process.status() == psutil.STATUS_ZOMBIE:
                return
            await asyncio.sleep(POLL_S)
