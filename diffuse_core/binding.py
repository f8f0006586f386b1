"""What to tell of a port that cannot be listened on."""

from __future__ import annotations

import errno
import socket


def bind_problem(
    host: str, port: int, error: Exception, *, of_host: str, of_port: str, what: str = "listen"
) -> str:
    """The cause, and the options that mend it.

    Args:
        host: as it was asked for.
        port: as it was asked for.
        error: what binding raised.
        of_host: the option that gives another host.
        of_port: the option that gives another port.
        what: what was to be done there.
    """
    code = error.errno if isinstance(error, OSError) else 0
    if isinstance(error, socket.gaierror | UnicodeError):
        return (
            f"cannot {what} on {host!r}: no such host; give an address of this machine with "
            f"{of_host}"
        )
    if code == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with {of_port} or stop what uses it"
    if code == errno.EACCES:
        return f"port {port} may not be bound by this user; choose one above 1023 with {of_port}"
    # asyncio skips addresses of other machines from Python 3.13 on, and then has no errno.
    if code in (errno.EADDRNOTAVAIL, None):
        return f"{host} is no address of this machine; choose one that is with {of_host}"
    return f"cannot {what} on {host}:{port}: {error}; choose another address with {of_host}"
