"""The end of a node that runs here, asked for by its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.errors import Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.settings import NetworkOptions


async def end_node(state: Path, network: NetworkOptions, patience: float | None) -> None:
    """Ask the node of a state directory to end, and wait until its process is gone.

    `patience` is how many seconds its Sessions may take, None its usual time. When this is
    cancelled, the node ends all the same.

    Raises:
        Unreachable: none runs, or it does not answer.
        Refused: it did not end in time.
    """
    from diffuse_core.node_end import gone, in_time, process_of
    from diffuse_core.settings import running_node
    from diffuse_core.wiring import attach

    found = running_node(state)
    if found is None:
        raise Unreachable("no node runs here any more, so there is nothing to end")
    process = process_of(found.pid)
    attachment = await attach(state, network)
    try:
        async with in_time(found.pid, patience):
            await attachment.stop_node(patience)
            await gone(process)
    finally:
        await attachment.close()
