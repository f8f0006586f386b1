"""Blueprints that outlive the process, so that the next one need not ask the library.

`transformers` and what it imports take seconds of a core and some 150 MiB for as long as the
process lives, and for models of the lean engine they serve its check alone. So the check is made
once for the same settings, code and kind of CPU. What is there is trusted as the models beside it
are: whoever may write to the cache may replace those as well.
"""

from __future__ import annotations

import hashlib
import json
import logging
from importlib.metadata import PackageNotFoundError, distribution
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
        if CODE is None or seal != _seal(config, CODE, body):
            return None
        try:
            return msgspec.json.decode(body, type=Blueprint)
        except msgspec.MsgspecError:
            return None

    def keep(self, config: Mapping[str, object], blueprint: Blueprint) -> None:
        """Keep it where that is possible; it can always be made anew."""
        # Where other code was installed since this one was loaded, nobody knows who checked whom.
        if self._storage is None or CODE is None or _code() != CODE:
            return
        body = msgspec.json.encode(blueprint)
        try:
            self._storage.write(_name(config), _seal(config, CODE, body) + b"\n" + body)
        except UsageError as error:
            _log.debug("the check of the lean engine cannot be kept: %s", error)


def _code() -> bytes | None:
    """A digest of the code that checks and is checked; None where it cannot be told.

    torch and the library are known by what was installed: changes by hand are not seen.
    """
    place = Path(__file__).parent
    digest = hashlib.sha256(f"{torch.__version__} {torch.version.git_version}\n".encode())
    try:
        for name in ("transformers", "diffuse-tui"):
            digest.update((distribution(name).read_text("RECORD") or "").encode())
            digest.update(f"\n{name} {distribution(name).version}\n".encode())
        files = sorted(file for file in place.rglob("*.py") if file.is_file())
        for file in files:
            digest.update(f"\n{file.relative_to(place)}\n".encode() + file.read_bytes())
    except (OSError, PackageNotFoundError):
        return None
    return digest.digest() if files else None


CODE = _code()
"""Of what is loaded: read before an update can have changed it on the disk."""


def _name(config: Mapping[str, object]) -> str:
    """One for each model and kind of CPU: what other code kept is replaced."""
    settings = json.dumps(dict(config), sort_keys=True, default=str)
    kind = torch.backends.cpu.get_cpu_capability()
    return hashlib.sha256(f"{kind}\n{settings}".encode()).hexdigest()[:32]


def _seal(config: Mapping[str, object], code: bytes, body: bytes) -> bytes:
    """Over what is kept, and the model and the code that it is true of."""
    return hashlib.sha256(code + _name(config).encode() + body).hexdigest().encode()
