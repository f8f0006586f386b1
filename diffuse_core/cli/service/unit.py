"""The systemd unit of a service, as tight as what it does allows.

What each line means: systemd.service(5), systemd.exec(5), systemd.unit(5).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import diffuse_core
from diffuse_core.config_file import config_path
from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from diffuse_core.cli.service.inner import Inner

Scope = Literal["system", "user"]
MARK = "# Written by `diffuse service`"
"""How a unit of ours begins: others are not touched."""
CONFIG = Path("/etc/diffuse/config.toml")
SECRETS = "/etc/diffuse/%N.env"
KEY_FILES = ("network_key_file", "api_key_file")
STOP_MARGIN_S = 20
"""After its sessions: the farewell, and what a stuck disk may take."""
WATCHDOG_S = 60
BESIDE_BYTES = 3 * 2**29
"""What Python, torch and the network take beside weights and KV cache."""
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")

_FENCE = """\
# What it cannot do, whatever happens to it.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""


@dataclass(frozen=True)
class Unit:
    """What a unit is made of. `account` None: of a system one, a user made up for it."""

    name: str
    scope: Scope
    inner: Inner
    python: Path
    account: str | None = None

    def text(self) -> str:
        """The unit file.

        Raises:
            UsageError: it could not run so.
        """
        return "\n".join([*self._head(), *self._service(), *self._install()]) + "\n"

    def _head(self) -> Iterator[str]:
        yield MARK + f" {diffuse_core.__version__}; `diffuse service uninstall` removes it."
        yield "[Unit]"
        yield f"Description=Diffuse {self.inner.command}"
        yield "Documentation=man:systemd.service(5)"
        if self.scope == "system":
            yield "Wants=network-online.target"
            yield "After=network-online.target"
        yield "StartLimitIntervalSec=600"
        yield "StartLimitBurst=20"
        yield ""

    def _service(self) -> Iterator[str]:
        yield "[Service]"
        yield "Type=notify"
        yield "NotifyAccess=main"
        words = [str(self.python), "-m", "diffuse_core", *self._words()]
        yield f"ExecStart={' '.join(map(quoted, words))}"
        yield "Restart=on-failure"
        yield "RestartSec=5"
        yield "# Usage, and a model that cannot be used: trying again would not help."
        yield "RestartPreventExitStatus=2 3"
        yield f"WatchdogSec={WATCHDOG_S}"
        yield "TimeoutStartSec=180"
        yield "# SIGTERM lets sessions finish (--drain-timeout), then all else."
        yield "KillSignal=SIGTERM"
        yield "KillMode=mixed"
        yield f"TimeoutStopSec={self.inner.drain_s + STOP_MARGIN_S}"
        yield "LimitNOFILE=65536"
        yield "UMask=0077"
        # In the journal; else all services are `python` there.
        yield "SyslogIdentifier=%N"
        yield "Environment=PYTHONUNBUFFERED=1"
        if self.scope == "system":
            yield from self._system()
        else:
            yield "NoNewPrivileges=yes"
        yield from self._memory()
        yield ""

    def _words(self) -> Iterator[str]:
        keys = {str(path): name for name, path in self._keys()}
        for word in self.inner.words:
            flag, equals, value = word.rpartition("=")
            if self.scope == "system" and value in keys:
                yield f"{flag}{equals}${{CREDENTIALS_DIRECTORY}}/{keys[value]}"
            else:
                yield word

    def left_out(self, environ: Mapping[str, str]) -> list[str]:
        """Settings of whoever asks for the unit, which do not count in it."""
        names = [name for name in sorted(environ) if name.startswith("DIFFUSE_") and environ[name]]
        path = config_path(environ)
        own = self.scope == "system" and path != CONFIG and path.is_file()
        return [*names, *([str(path)] if own else [])]

    def _keys(self) -> Iterator[tuple[str, Path]]:
        """The files with secrets, which systemd reads for whoever it runs as."""
        for option in KEY_FILES:
            if (path := self.inner.path(option)) is not None:
                yield option.removesuffix("_file").replace("_", "-"), path

    def _system(self) -> Iterator[str]:
        config = CONFIG if CONFIG.exists() else Path("/dev/null")
        yield f"Environment=DIFFUSE_CONFIG={config}"
        yield f"# Secrets, such as DIFFUSE_NETWORK_KEY=..., in a file of mode 0600: {SECRETS}"
        yield f"EnvironmentFile=-{SECRETS}"
        for name, path in self._keys():
            yield f"LoadCredential={name}:{escaped(str(path))}"
        if self.account is None:
            yield "DynamicUser=yes"
        else:
            yield f"User={self.account}"
        yield f"StateDirectory={self.name}"
        yield f"CacheDirectory={self.name}"
        yield "StateDirectoryMode=0700"
        if self.inner.path("state_dir") is None:
            yield f"Environment=DIFFUSE_STATE_DIR=%S/{self.name}"
        yield f"Environment=DIFFUSE_CACHE_DIR=%C/{self.name} HOME=%S/{self.name}"
        yield ""
        yield _FENCE.rstrip()
        # A GPU is a device of the machine.
        if self.inner.given.get("device") == "cpu" or self.inner.command != "host":
            yield "PrivateDevices=yes"
        yield f"ProtectHome={'read-only' if self._needs_home() else 'yes'}"
        for place in sorted({str(path) for path in self.written()}):
            yield f"ReadWritePaths={_listed(place)}"

    def read(self) -> Iterator[Path]:
        """What it has to read as whoever it runs as: the program, and files of its command."""
        yield from (self.python, Path(sys.base_prefix), Path(diffuse_core.__file__))
        if self.scope == "system" and CONFIG.exists():
            yield CONFIG
        for word in self._words():
            value = word.rpartition("=")[2]
            if value.startswith("/"):
                yield Path(value)

    def written(self) -> Iterator[Path]:
        """Directories beside its own, which it writes to."""
        if (state := self.inner.path("state_dir")) is not None:
            yield state
        if (log := self.inner.path("log_file")) is not None:
            yield log.parent

    def _needs_home(self) -> bool:
        """Whether the program, or what it is to read, is in somebody's home."""
        places = [*self.read(), *self.written()]
        return any(
            home in (path, *path.parents) or home in path.resolve().parents
            for path in places
            for home in _HOMES
        )

    def _memory(self) -> Iterator[str]:
        if self.inner.command != "host":
            return
        size = self.inner.given.get("memory")
        yield ""
        yield "# Keeps the machine alive where the host takes more than it should; much more than"
        yield "# --memory, which is without Python and torch."
        if size:
            most = -(-(parse_size(size) * 5 // 4 + BESIDE_BYTES) // 2**20)
            yield f"# MemoryMax={most}M"
        else:
            yield "# MemoryMax=80%"

    def _install(self) -> Iterator[str]:
        yield "[Install]"
        target = "multi-user.target" if self.scope == "system" else "default.target"
        yield f"WantedBy={target}"


def check_name(name: str) -> str:
    """The name of a unit, which is a file's and a word of systemctl's command line.

    Raises:
        UsageError: it is none.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise UsageError("--name: letters, digits, _ and -, at most 64")
    return name


def check_unit(unit: Unit) -> None:
    """See that a unit can do what its command says.

    Raises:
        UsageError: it cannot.
    """
    check_name(unit.name)
    account = unit.account
    if account is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,31}", account):
        raise UsageError("--run-as: this is no name of a user")
    if unit.scope == "user" and unit.account is not None:
        raise UsageError("--run-as is for units of the system; a --user unit runs as you")
    if unit.scope == "system" and unit.account is None:
        for option in ("state_dir", "log_file"):
            if unit.inner.path(option) is not None:
                flag = "--" + option.replace("_", "-")
                raise UsageError(
                    f"the user that systemd makes up for this service could not write to {flag}: "
                    "leave it out (systemd gives it a directory, and keeps its log), or give "
                    "--run-as USER"
                )


def quoted(word: str) -> str:
    """A word of ExecStart= as systemd reads it (systemd.service(5), "command lines")."""
    if word.startswith("${CREDENTIALS_DIRECTORY}"):
        return word
    flag, _, reference = word.partition("=")
    if reference.startswith("${CREDENTIALS_DIRECTORY}"):
        return f"{flag}={reference}"
    if _PLAIN.fullmatch(word):
        return word
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(plain, written)
    return f'"{word}"'


def escaped(path: str) -> str:
    """A path as settings take it that are no command lines."""
    return path.replace("%", "%%")


def _listed(path: str) -> str:
    """A path in a setting that takes several, with spaces between them."""
    if _PLAIN.fullmatch(path):
        return path
    inner = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(inner)}"'


def paths_of(scope: Scope, home: Path) -> Path:
    """The directory of units that an administrator, or a user, writes."""
    if scope == "system":
        return Path("/etc/systemd/system")
    return home / ".config" / "systemd" / "user"


def words_of(commands: Sequence[Sequence[str]]) -> str:
    """Commands to type, a line each."""
    return "\n".join("  " + " ".join(command) for command in commands)
