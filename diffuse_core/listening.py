"""How a port stops listening without losing whom it has just let in."""

from __future__ import annotations

import asyncio
import contextlib


async def stop_listening(server: asyncio.Server) -> None:
    """Close `server`; idempotent.

    Its connections stand afterwards, all with a protocol that knows of them. `Server.close` alone
    forgets who is accepted in the same turn of the loop: before Python 3.12.9 and 3.13.1
    (gh-109564) that socket stays open, and its peer waits, until the garbage is collected.
    """
    loop = server.get_loop()
    try:
        for listening in server.sockets:
            # Only the loops of Unix watch sockets; those of Windows accept in one step.
            with contextlib.suppress(NotImplementedError):
                loop.remove_reader(listening.fileno())
        # One turn in which the last ones get their transports, one for their protocols to be told.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        server.close()
