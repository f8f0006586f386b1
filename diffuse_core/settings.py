"""Settings: where things lie on disk, defaults, and how values given as text are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

APP = "diffuse"
DEFAULT_PORT = 9440
PORT_TRIES = 32
"""How many ports from DEFAULT_PORT on are tried when none was asked for."""
DEFAULT_NETWORK = "public"
NODE_FILE = "node.json"
MAX_NODE_FILE = 4096

MIN_SIZE = 2**20
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)\s*$", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes of e.g. `150MiB`, `2GB`, `1.5g` or `4096`; `MiB` is 2^20 bytes, `MB` 10^6.

    Raises:
        UsageError: it is no size.
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"{text!r} is no size; write e.g. 150MiB or 2GiB")
    unit = match[2].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    size = int(float(match[1]) * base ** _UNITS[unit.rstrip("b").rstrip("i")])
    if not MIN_SIZE <= size < 2**50:
        meant = f"; did you mean {text.strip()}MiB?" if not match[2] else ", e.g. 150MiB or 2GiB"
        raise UsageError(f"{text!r} is {size} bytes, which is no useful size{meant}")
    return size


def size_text(size: float) -> str:
    """Bytes for people: `150.0 MiB`, `15.4 GiB`."""
    mib = size / 2**20
    return f"{mib:.1f} MiB" if mib < 2**10 else f"{mib / 2**10:.1f} GiB"


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[IPV6]:PORT`, also with a `ws://` prefix.

    Raises:
        UsageError: it is no address.
    """
    bare = text.strip().removeprefix("ws://").rstrip("/")
    host, colon, port = bare.rpartition(":")
    if bare.endswith("]") or not colon:
        host, port = bare, "" if default_port is None else str(default_port)
    valid = port.isascii() and port.isdigit() and int(port) < 2**16
    host = host.removeprefix("[").removesuffix("]")
    if not valid or not host or any(c.isspace() or c in "/@?#" for c in host):
        raise UsageError(f"{text!r} is no address; write HOST:PORT, e.g. 192.168.1.20:9440")
    return host, int(port)


def parse_bootstrap(values: Sequence[str]) -> tuple[str, ...]:
    """Addresses of a repeated or comma-separated option, each checked, with the port filled in.

    Raises:
        UsageError: one of them is no address.
    """
    found = []
    for value in values:
        for part in filter(None, (piece.strip() for piece in value.split(","))):
            host, port = parse_address(part, DEFAULT_PORT)
            if port == 0:
                raise UsageError(f"{part!r} has port 0, which nobody can be reached at")
            found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    if values and not found:
        raise UsageError("--bootstrap is empty; give HOST:PORT of a known node, or leave it out")
    return tuple(dict.fromkeys(found))


def state_dir(given: str | None) -> Path:
    """The state directory: the one given, `DIFFUSE_STATE_DIR`, or the platform's."""
    chosen = given or os.environ.get("DIFFUSE_STATE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path(APP, appauthor=False)


def cache_dir() -> Path:
    """Where models and tokenizer bundles are kept: `DIFFUSE_CACHE_DIR` or the platform's."""
    chosen = os.environ.get("DIFFUSE_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path(APP, appauthor=False)


class NodeFile(msgspec.Struct, frozen=True):
    """What a running node leaves in its state directory for its owner's other commands."""

    address: str
    node: str
    pid: int


def running_node(directory: Path) -> NodeFile | None:
    """The node that runs with this state directory, if one does."""
    path = directory / NODE_FILE
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(MAX_NODE_FILE), type=NodeFile)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    import psutil

    return found if psutil.pid_exists(found.pid) else None
