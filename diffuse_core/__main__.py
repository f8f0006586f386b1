"""`python -m diffuse_core` and the `diffuse` command: everything but the terminal app."""

from __future__ import annotations

import signal
import sys


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its status."""
    try:
        from diffuse_core.cli import run

        code = run(arguments)
    except KeyboardInterrupt:
        code = 130
    # All is done: Ctrl+C from here on ends the process, with no word of Python's about it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    main()
