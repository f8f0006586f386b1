"""While the app has the terminal, nobody else writes on it: what they say goes to a file."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from diffuse_tui.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = "app.log"
MAX_BYTES = 2**20
"""A log that has grown beyond is begun anew."""


@contextmanager
def quiet(directory: Path) -> Iterator[None]:
    """Send what others write to stderr to `LOG` in `directory` until left.

    The terminal's own stream, which the app draws on, is kept as `sys.__stderr__`. A directory
    that cannot be written to means that what others say is not kept at all.
    """
    log = _open(directory / LOG)
    screen = os.dup(2)
    before = sys.__stderr__
    sys.stderr.flush()
    os.dup2(log, 2)
    handler = logging.StreamHandler(os.fdopen(log, "w", encoding="utf-8", errors="replace"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    stream = os.fdopen(screen, "w", encoding="utf-8", errors="replace")
    sys.__stderr__ = stream  # type: ignore[misc]
    try:
        yield
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
        with suppress(OSError, ValueError):
            stream.flush()
        os.dup2(screen, 2)
        sys.__stderr__ = before  # type: ignore[misc]
        for kept in (stream, handler.stream):
            with suppress(OSError, ValueError):
                kept.close()


def _open(file: Path) -> int:
    with suppress(OSError):
        handle = open_private(file, append=True)
        if os.fstat(handle).st_size > MAX_BYTES:
            os.ftruncate(handle, 0)
        return handle
    return os.open(os.devnull, os.O_WRONLY)
