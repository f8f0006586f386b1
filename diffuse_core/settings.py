"""Settings: where things lie on disk, defaults, and how values given as text are read."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.config_file import read_config
from diffuse_core.configuration import (
    CACHE_DIR,
    ONLY_FLAGS,
    SECRET_VARIABLE,
    Sources,
)
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import UsageError
from diffuse_core.own_paths import full_path, opened_at_once, user_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.configuration import Setting, Value
    from diffuse_core.domain.identity import NodeId

DEFAULT_PORT = 9440
PORT_TRIES = 32
"""How many ports from DEFAULT_PORT on are tried when none was asked for."""
DEFAULT_NETWORK = "public"
OF_NETWORK = "network network-key network-key-file allow mdns bootstrap state-dir"
"""Options of which network to be on, which commands that we start are given as we have them."""
NODE_FILE = "node.json"
MAX_NODE_FILE = 4096
SAME_START_S = 2.0
"""What one process's start is told apart by: clocks of a machine's parts are that exact."""

MAX_NETWORK_BYTES = 64
MAX_SECRET_FILE = 4096
MAX_ALLOW_FILE = 2**20


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
    found = ["{}:{}".format(*_far(piece)) for piece in _pieces(values) if piece]
    if values and not found:
        raise UsageError("--bootstrap is empty; give HOST:PORT of a known node, or leave it out")
    return tuple(dict.fromkeys(found))


def parse_public(values: Sequence[str]) -> tuple[str, ...]:
    """Addresses that others reach this node at; without a port they mean that it listens on.

    Raises:
        UsageError: one of them is no address, or has port 0.
    """
    found = []
    for piece in _pieces(values):
        host, port = _far(piece)
        bare = piece.removeprefix("ws://").rstrip("/")
        ported = not bare.endswith("]") and ":" in bare
        found.append(f"{host}:{port}" if ported else host)
    return tuple(dict.fromkeys(found))


def _pieces(values: Sequence[str]) -> list[str]:
    return [piece.strip() for value in values for piece in value.split(",")]


def _far(piece: str) -> tuple[str, int]:
    """Host, with brackets around IPv6, and port of a node elsewhere."""
    host, port = parse_address(piece, DEFAULT_PORT)
    if port == 0:
        raise UsageError(f"{piece!r} has port 0, which nobody can be reached at")
    return f"[{host}]" if ":" in host else host, port


def check_value(setting: Setting, value: Value) -> None:
    """Check a setting that no option of a command checks, as those of the app.

    Raises:
        UsageError: it is of no use; the message says where it is from.
    """
    if setting.choices and value.given not in setting.choices:
        raise UsageError(
            f"{value.origin}: {clean(str(value.given))[:40]!r} is no value of --{setting.key}; "
            f"choose one of {', '.join(setting.choices)}"
        )
    try:
        if isinstance(value.given, tuple) and setting.key == "bootstrap":
            parse_bootstrap(value.given)
        elif isinstance(value.given, str) and setting.key.endswith("-dir"):
            full_path(value.given)
    except UsageError as error:
        raise UsageError(f"{value.origin}: {error}") from error


@dataclass(frozen=True)
class NetworkOptions:
    """Which network to be on, and with whom. The secret shows in no representation of this."""

    name: str = DEFAULT_NETWORK
    secret: str | None = field(default=None, repr=False)
    allowed: frozenset[NodeId] | None = None
    """The only nodes to talk to; None is for everybody."""
    mdns: bool = True
    """Whether to look for nodes on the LAN, and to be found there."""

    @cached_property
    def key(self) -> bytes | None:
        """What the secret makes of the handshake; takes a tenth of a second once."""
        if self.secret is None:
            return None
        from diffuse_core.domain.network_key import derive_key

        return derive_key(self.name, self.secret)

    @property
    def tag(self) -> bytes:
        """What stands for the network's name in clear."""
        from diffuse_core.domain.channel import network_tag

        return network_tag(self.name)

    def arguments(self) -> list[str]:
        """The options that give these to a command; the secret goes with `environment`."""
        allowed = sorted(node.hex() for node in self.allowed or ())
        given = [word for node in allowed for word in ("--allow", node)]
        return ["--network", self.name, "--mdns" if self.mdns else "--no-mdns", *given]

    def environment(self, only_flags: str = OF_NETWORK) -> dict[str, str]:
        """Our environment, as a command on this network must have it.

        The secret does not go through the command line, which every user of a machine can read.

        Args:
            only_flags: Options that neither variables nor the file of settings are to change;
                `*` for all.
        """
        ours = {name: value for name, value in os.environ.items() if name != SECRET_VARIABLE}
        ours[ONLY_FLAGS] = only_flags
        return ours if self.secret is None else {**ours, SECRET_VARIABLE: self.secret}


PUBLIC = NetworkOptions()


@dataclass(frozen=True)
class Places:
    """Where to look for the network: at `given` addresses, else from the state directory on."""

    given: tuple[str, ...] = ()
    state: Path | None = None


def network_options(
    name: str | None,
    secret: str | None,
    secret_file: str | None,
    allow: Sequence[str],
    *,
    mdns: bool | None,
) -> NetworkOptions:
    """What the options of a command say, however they were given.

    Raises:
        UsageError: they contradict each other, a file cannot be read, or something in it is of
            no use. A secret is never part of the message.
    """
    if secret is not None and secret_file is not None:
        raise UsageError("give --network-key or --network-key-file, not both")
    place = "--network-key"
    if secret_file is not None:
        place = f"--network-key-file {secret_file}"
        lines = _read_text(secret_file, MAX_SECRET_FILE, "--network-key-file").splitlines()
        secret = lines[0].strip() if lines else ""
    if secret is not None:
        from diffuse_core.domain.network_key import MAX_SECRET_BYTES

        if not 0 < _bytes_of(secret, place) <= MAX_SECRET_BYTES:
            raise UsageError(f"{place}: a network key has 1 to {MAX_SECRET_BYTES} bytes")
    name = DEFAULT_NETWORK if name is None else name
    if _surrogate(name):
        raise UsageError("--network: a network's name is text in UTF-8, which this is not")
    if not 0 < len(name.encode()) <= MAX_NETWORK_BYTES:
        raise UsageError(f"--network: a network's name has 1 to {MAX_NETWORK_BYTES} bytes")
    return NetworkOptions(name, secret, _allowed(allow), mdns is not False)


def _bytes_of(secret: str, place: str) -> int:
    """How many bytes a secret has. Bytes that are no UTF-8 came as surrogates, and count."""
    try:
        return len(secret.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{place}: a network key is text or bytes, and this is neither"
        ) from error


def _surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _allowed(values: Sequence[str]) -> frozenset[NodeId] | None:
    """The node ids of a repeated option: ids, or files that list them. None when not given."""
    if not values:
        return None
    from diffuse_core.domain.allow_list import parse_id, parse_lines

    found: set[NodeId] = set()
    for value in values:
        if re.fullmatch("[0-9a-fA-F]+", value) and not _is_there(value):
            found.add(parse_id(value, "--allow"))
        else:
            found |= parse_lines(_read_text(value, MAX_ALLOW_FILE, "--allow"), value)
    return frozenset(found)


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # Too long for a name, say.
        return False


def _read_text(path: str, limit: int, option: str) -> str:
    try:
        with full_path(path).open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{option}: cannot read {path!r}: {reason.lower()}") from error
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error
    if len(data) > limit:
        raise UsageError(f"{option}: {path!r} is larger than {limit} bytes")
    # Some editors begin a file with a byte order mark. Other bytes stay what they are, so that a
    # key is the same from a file and from the command line.
    return data.decode("utf-8-sig", "surrogateescape")


def state_dir(given: str | None) -> Path:
    """The state directory: the one given, `DIFFUSE_STATE_DIR`, or the platform's.

    Raises:
        UsageError: there is no such place.
    """
    chosen = given or os.environ.get("DIFFUSE_STATE_DIR")
    return full_path(chosen) if chosen else user_directory("state", "give --state-dir")


def cache_dir() -> Path:
    """Where models, tokenizer bundles and blueprints are kept.

    As `DIFFUSE_CACHE_DIR` says, else `cache-dir` in the file of settings, else the platform.

    Raises:
        UsageError: the file cannot be used, or there is no such place.
    """
    chosen = Sources(os.environ, read_config()).find(CACHE_DIR, [()])
    if chosen is None:
        return user_directory("cache", "DIFFUSE_CACHE_DIR to a directory")
    check_value(CACHE_DIR, chosen)
    return full_path(str(chosen.given))


class NodeFile(msgspec.Struct, frozen=True):
    """What a running node leaves in its state directory for its owner's other commands."""

    address: str
    node: str
    pid: int
    started: float = 0.0
    """As `process_start` gives it; 0 where the node did not say."""


def running_node(directory: Path) -> NodeFile | None:
    """The node that runs with this state directory, if one does."""
    path = directory / NODE_FILE
    try:
        with open(path, "rb", opener=opened_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            found = msgspec.json.decode(file.read(MAX_NODE_FILE), type=NodeFile)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    started = process_start(found.pid)
    if started is None:
        return None
    # A node that a power cut ended leaves its file, and after it another program has its number.
    same = not found.started or abs(found.started - started) < SAME_START_S
    return found if same else None


def process_start(pid: int) -> float | None:
    """Seconds from the machine's start to that of a process; None where there is none, 0 unknown.

    Unlike the time of day it is not changed by a clock that is set.
    """
    import psutil

    try:
        return float(psutil.Process(pid).create_time() - psutil.boot_time())
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return None
    except psutil.Error:
        return 0.0
