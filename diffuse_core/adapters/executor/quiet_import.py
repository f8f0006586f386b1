"""Imports of torch and what stands on it, without holding up the event loop.

An import in a thread keeps the interpreter for as long as the linker maps torch's libraries, and
for each full garbage collection among a million new objects: up to 190 ms at once on an idle
machine, several times that on a busy one, in which a node answers nobody. Here the libraries are
opened while other threads run, and nothing is collected until the import is through; 30 ms remain.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from threading import Lock

LIBRARIES = ("libtorch_global_deps", "libtorch_cpu")
"""As torch opens them, the first for all to see."""

_lock = Lock()


def import_quietly(module: str) -> None:
    """Import `module` by its full name; nothing happens when that was done before."""
    with _lock:
        if module in sys.modules:
            return
        open_libraries()
        collecting = gc.isenabled()
        gc.disable()
        try:
            importlib.import_module(module)
        finally:
            # Modules live as long as the process: no collection need look at them again.
            gc.freeze()
            if collecting:
                gc.enable()


def open_libraries() -> bool:
    """Map torch's libraries into the process; False when the import will have to.

    A foreign function runs without the interpreter's lock, dlopen called as one as well.
    """
    suffix = {"linux": "so", "darwin": "dylib"}.get(sys.platform)
    spec = importlib.util.find_spec("torch")
    if suffix is None or spec is None or spec.origin is None:
        return False
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    modes = (os.RTLD_NOW | os.RTLD_GLOBAL, os.RTLD_NOW)
    paths = [Path(spec.origin).parent / "lib" / f"{name}.{suffix}" for name in LIBRARIES]
    return all(dlopen(os.fsencode(path), mode) for path, mode in zip(paths, modes, strict=True))
