"""The end of a node that runs here, asked for by its owner."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.errors import Refused, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.settings import NetworkOptions

GONE_S = 20.0
"""For a node to end once its Sessions are over."""
POLL_S = 0.1


async def end_node(state: Path, network: NetworkOptions, patience: float | None) -> None:
    """Ask the node of a state directory to end, and wait until its process is gone.

    `patience` is how many seconds its Sessions may take, None its usual time. When this is
    cancelled, the node ends all the same.

    Raises:
        Unreachable: none runs, or it does not answer.
        Refused: it did not end in time.
    """
    from diffuse_core.services.placement import STOP_S
    from diffuse_core.settings import running_node
    from diffuse_core.wiring import attach

    found = running_node(state)
    if found is None:
        raise Unreachable("no node runs here any more, so there is nothing to end")
    attachment = await attach(state, network)
    limit = (STOP_S if patience is None else patience) + GONE_S
    try:
        async with asyncio.timeout(limit):
            await attachment.stop_node(patience)
            while _runs(found.pid):  # noqa: ASYNC110 - no child of ours
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise Refused(
            f"the node (process {found.pid}) did not end within {limit:.0f} s; look at its log, "
            f"or end it with `kill {found.pid}`",
            "busy",
        ) from None
    finally:
        await attachment.close()


def _runs(pid: int) -> bool:
    """Whether a process runs; one that its parent has not looked at yet does not."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
