"""Giving memory back while a Slice is loaded.

glibc keeps what is freed for later, the more the larger pieces it has seen: after a load of
50 MiB of 4-bit weights a process held 146. While loading, each larger piece gets pages of its
own, which go back when it is freed; afterwards pieces up to 32 MiB are kept again, and up to 64
MiB of free memory, as glibc does at most by itself: pages that are given back and asked for again
in every layer cost time (the attention of 256 rows at position 1,280 takes 10 ms instead of 6).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of https://man7.org/linux/man-pages/man3/mallopt.3.html.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LOADING = 128 * 1024
_COMPUTING = 32 * 2**20
_KEPT = 2 * _COMPUTING


@contextlib.contextmanager
def returning_memory() -> Iterator[None]:
    """Within, freed pieces of more than 128 KiB go back to the system; a no-op without glibc."""
    library = _glibc()
    if library is None:
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, _LOADING)
    library.mallopt(_M_TRIM_THRESHOLD, _LOADING)
    try:
        yield
    finally:
        library.mallopt(_M_MMAP_THRESHOLD, _COMPUTING)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    known = hasattr(library, "mallopt") and hasattr(library, "malloc_trim")
    return library if known else None
