"""Blueprints that outlive the process, so that the next one need not ask the library.

`transformers` and what it imports take seconds of a core and some 110 MiB for as long as the
process lives, and for models of the lean engine they serve its check alone. The same check of the
same settings by the same code on a CPU of the same kind can but have the same result.
"""

from __future__ import annotations

import hashlib
import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch

from diffuse_core.adapters.executor.lean.blueprint import Blueprint
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.ports import Storage

_log = logging.getLogger(__name__)


class Blueprints:
    """Blueprints by a model's settings. Without a storage nothing is kept."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage

    def find(self, config: Mapping[str, object]) -> Blueprint | None:
        """What was kept by the very code that runs now; None when there is nothing to rely on."""
        if self._storage is None:
            return None
        try:
            data = self._storage.read(_name(config)) or b""
        except UsageError as error:
            _log.debug("a kept check of the lean engine cannot be read: %s", error)
            return None
        seal, _, body = data.partition(b"\n")
        if seal != _seal(body):
            return None
        try:
            return msgspec.json.decode(body, type=Blueprint)
        except msgspec.MsgspecError:
            return None

    def keep(self, config: Mapping[str, object], blueprint: Blueprint) -> None:
        """Keep it where that is possible; it can always be made anew."""
        if self._storage is None:
            return
        body = msgspec.json.encode(blueprint)
        try:
            self._storage.write(_name(config), _seal(body) + b"\n" + body)
        except UsageError as error:
            _log.debug("the check of the lean engine cannot be kept: %s", error)


def _name(config: Mapping[str, object]) -> str:
    """One for each model and kind of CPU: what other code kept is replaced."""
    settings = json.dumps(dict(config), sort_keys=True, default=str)
    kind = torch.backends.cpu.get_cpu_capability()
    return hashlib.sha256(f"{kind}\n{settings}".encode()).hexdigest()[:32]


def _seal(body: bytes) -> bytes:
    """Over what is kept and the code that it is true of: the library's, torch's and our own."""
    place = Path(__file__).parent
    own = sorted(
        (str(file.relative_to(place)), stat.st_size, stat.st_mtime_ns)
        for file in place.rglob("*.py")
        for stat in (file.stat(),)
    )
    code = f"{torch.__version__} {version('transformers')} {own}"
    return hashlib.sha256(code.encode() + b"\n" + body).hexdigest().encode()
