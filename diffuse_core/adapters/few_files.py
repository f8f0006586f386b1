"""When the process may open no more files: connections wait, and the log says so now and then.

asyncio tries each waiting connection again every second, and logs each with a traceback: whoever
opens connections could fill the log of a node.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Any

from diffuse_core.services.tasks import Dropped

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""As asyncio takes them: the next try may do."""
ACCEPTING = "socket.accept()"
"""Of what asyncio's report begins with (`BaseSelectorEventLoop._accept_connection`)."""
TRYING_AGAIN = "_start_serving"
"""What it does a second later, also at a port that was closed meanwhile."""


def bear_few_files(loop: asyncio.AbstractEventLoop) -> None:
    """Tell at most once a minute that connections wait; other errors of the loop as before."""
    waiting = Dropped(
        "all files that this process may open are in use: raise its limit (see `ulimit -n`) or "
        "have fewer nodes and programs dial it; now waits"
    )

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = str(context.get("message", ""))
        accepting = message.startswith(ACCEPTING)
        if accepting and isinstance(error, OSError) and error.errno in FULL:
            waiting.count(log, loop.time(), "a connection")
        elif not (TRYING_AGAIN in message and isinstance(error, ValueError)):
            loop.default_exception_handler(context)

    loop.set_exception_handler(on_error)
