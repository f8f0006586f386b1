"""Runs a `diffuse` command whose time of day is wrong: put it before the command.

    python tests/chaos/wrong_clock.py SECONDS python -m diffuse_core COMMAND ...

Only the wall clock differs; what passes is counted rightly, as on a machine whose clock was set
wrong. The process keeps its id.
"""

from __future__ import annotations

import runpy
import sys
import time


def main(arguments: list[str]) -> None:
    """Shift the time, and be that command."""
    shift = float(arguments[0])
    right = time.time
    time.time = lambda: right() + shift
    module = arguments.index("-m") + 1
    sys.argv = arguments[module:]
    # In place of this directory, that a command has: where it was started.
    sys.path[0] = ""
    runpy.run_module(arguments[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
