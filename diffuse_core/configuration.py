"""Where a setting comes from that no flag gave: the environment, then the user's `config.toml`.

Values stay the text that a command line would have, so that whoever reads options checks them the
same way from everywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diffuse_core.config_file import ConfigFile

ONLY_FLAGS = "DIFFUSE_ONLY_FLAGS"
"""Options that only flags give, for commands which our own processes start; `*` is all."""
SECRET = "network-key"  # noqa: S105 - the option's name
SECRET_VARIABLE = "DIFFUSE_NETWORK_KEY"  # noqa: S105
MAX_NUMBER = 2**64
TAKEN = frozenset({"DIFFUSE_DRAIN_TIMEOUT"})
"""Variables of options of that whole name, as `--drain-timeout`: not also of `drain --timeout`."""
UNSPLIT = frozenset({"stop"})
"""Repeated options whose texts may have commas: a variable is one of them."""

Kind = Literal["text", "whole", "number", "switch"]
Place = tuple[str, ...]
"""The commands that a table or a variable is for, as ("identity", "show"); () is for all."""

_OF_A_SERVICE = re.compile(
    r"DIFFUSE_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))"
)
_KINDS = {
    "text": "a text in quotes",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
}


@dataclass(frozen=True)
class Setting:
    """An option as the file and the environment know it; `key` is its long name."""

    key: str
    kind: Kind = "text"
    several: bool = False
    inverse: str | None = None
    """The name that switches the other way, as `no-mdns` for `mdns`."""
    choices: tuple[str, ...] = ()
    """All values that there are, where that is known; of commands click knows it."""

    @property
    def secret(self) -> bool:
        """Whether the value itself is nothing for a screen."""
        return self.key.endswith("-key")

    @property
    def names(self) -> tuple[str, ...]:
        """Under which it may stand."""
        return (self.key,) if self.inverse is None else (self.key, self.inverse)


CACHE_DIR = Setting("cache-dir")
THEMES = ("dark", "light", "contrast", "ansi")
DTYPES = ("auto", "fp32", "bf16", "int8", "int4")
MOST_HOSTS = 16
"""Of a demo."""
APP_SETTINGS = (
    Setting("bootstrap", several=True),
    Setting("model"),
    Setting("state-dir"),
    Setting("network"),
    Setting(SECRET),
    Setting("network-key-file"),
    Setting("allow", several=True),
    Setting("mdns", "switch", inverse="no-mdns"),
    Setting("theme", choices=THEMES),
    Setting("no-history", "switch", inverse="history"),
)
"""Options of the terminal app; its table is `[app]`."""
DEMO_SETTINGS = (
    Setting("hosts", "whole", choices=tuple(map(str, range(1, MOST_HOSTS + 1)))),
    Setting("dtype", choices=DTYPES),
)
"""What the app's demo takes from the table of `diffuse demo`."""


RIVALS = {
    SECRET: ("network-key-file",),
    "network-key-file": (SECRET,),
    "raw": ("system",),
    "system": ("raw",),
}
"""Options that exclude each other: what is given nearer to the command line wins."""

Known = Mapping[Place, Mapping[str, "Setting | None"]]
"""Of places their settings by every name; None are options of one call only."""


@dataclass(frozen=True)
class Value:
    """A value that was found, and where: a variable's name, or the file and the key in it."""

    given: str | bool | tuple[str, ...] = field(repr=False)
    source: Literal["environment", "file"]
    origin: str
    rank: int
    """The lower, the nearer to the command line."""

    @property
    def mend(self) -> str:
        """What to do when it is wrong."""
        return "set it right or unset it" if self.source == "environment" else "set it right there"


def variable(place: Place, name: str) -> str:
    """The environment variable of an option, for the commands of a place."""
    found = "_".join(("DIFFUSE", *place, name)).upper().replace("-", "_")
    return variable((), name) if place and found in TAKEN else found


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing."""
    import difflib

    lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), list(lower), n=1)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""


@dataclass(frozen=True)
class Sources:
    """The environment and the file, as one command finds them."""

    environ: Mapping[str, str]
    file: ConfigFile

    def find(self, setting: Setting, places: Sequence[Place]) -> Value | None:
        """The value for the first of the places that has one; the environment goes first.

        Raises:
            UsageError: it is of another kind than the option, or a secret that others can read.
        """
        only = self.environ.get(ONLY_FLAGS, "").split()
        if setting is not CACHE_DIR and ("*" in only or setting.key in only):
            secret = self.environ.get(SECRET_VARIABLE) if setting.key == SECRET else None
            return Value(secret, "environment", SECRET_VARIABLE, 0) if secret else None
        for rank, place in enumerate(places):
            if (value := self._of_environment(setting, place, rank)) is not None:
                return value
        for rank, place in enumerate(places, len(places)):
            if (value := self._of_file(setting, place, rank)) is not None:
                return value
        return None

    def _of_environment(self, setting: Setting, place: Place, rank: int) -> Value | None:
        for name in setting.names:
            origin = variable(place, name)
            text = self.environ.get(origin, "")
            if not text or of_kubernetes(origin, text):
                continue
            given: str | bool | tuple[str, ...] = text
            if setting.kind == "switch":
                given = _switch(text, origin) is (name == setting.key)
            elif setting.several:
                pieces = () if setting.key in UNSPLIT else text.split(",")
                given = tuple(piece.strip() for piece in pieces if piece.strip()) or (text,)
            return Value(given, "environment", origin, rank)
        return None

    def _of_file(self, setting: Setting, place: Place, rank: int) -> Value | None:
        table = self.file.table(place)
        found = [name for name in setting.names if name in table and not _is_table(table[name])]
        if not found:
            return None
        origin = self.file.told((*place, found[0]))
        if len(found) > 1:
            raise UsageError(f"{origin}: {found[1]} stands there as well; leave one out")
        if setting.key == SECRET and not self.file.private:
            raise UsageError(
                f"{origin}: others can read the file; run: chmod 600 "
                f"{shlex.quote(str(self.file.path))}, or use network-key-file"
            )
        given = plain(setting, table[found[0]], origin)
        if isinstance(given, bool) and found[0] != setting.key:
            given = not given
        return Value(given, "file", origin, rank)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def of_kubernetes(name: str, text: str) -> bool:
    """Whether Kubernetes has set the variable: of a Service `diffuse` it sets DIFFUSE_PORT."""
    address = "_PORT" in name and text.startswith(("tcp://", "udp://", "sctp://"))
    return address or _OF_A_SERVICE.fullmatch(name) is not None


def _switch(text: str, origin: str) -> bool:
    """A switch in the environment, by the words that click knows."""
    word = text.strip().lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise UsageError(
        f"{origin}: {clean(text)[:40]!r} is neither 1 nor 0; set it right, or unset it"
    )


def plain(setting: Setting, value: Any, origin: str) -> str | bool | tuple[str, ...]:
    """A value of the file as a command line would give it.

    Raises:
        UsageError: it is of another kind than the option.
    """
    if setting.several:
        pieces = value if isinstance(value, list) else [value]
        return tuple(str(_single(setting, piece, origin)) for piece in pieces)
    return _single(setting, value, origin)


def _single(setting: Setting, value: Any, origin: str) -> str | bool:
    fits = {
        "text": isinstance(value, str),
        "whole": type(value) is int,
        "number": type(value) in (int, float),
        "switch": isinstance(value, bool),
    }
    if not fits[setting.kind]:
        wanted = _KINDS[setting.kind]
        listed = f", or a list: [{wanted}, ...]" if setting.several else ""
        raise UsageError(f"{origin} is to be {wanted}{listed}")
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise UsageError(f"{origin} is a larger number than any option takes; give less")
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"{origin} has a NUL character, which no option takes; leave it out")
    return value if isinstance(value, bool) else str(value)


def outdone(key: str, found: Mapping[str, Value | None]) -> bool:
    """Whether of what was found an option that excludes this one is nearer to the command line."""
    value = found.get(key)
    rivals = [found.get(rival) for rival in RIVALS.get(key, ())]
    return value is not None and any(
        rival is not None and rival.rank < value.rank and rival.given is not False
        for rival in rivals
    )


def problems(file: ConfigFile, known: Known) -> Iterator[str]:
    """What stands in the file that means nothing, with the nearest thing that does.

    Args:
        file: What was read.
        known: Of each place the settings by every name; None are options of one call only.
    """
    yield from _problems(file, (), file.content, known)


def _program(place: Place) -> str:
    return "diffuse-tui" if place == ("app",) else f"diffuse {' '.join(place)}"


def app_problems(file: ConfigFile) -> Iterator[str]:
    """As `problems`, of the app's own table alone: the app does not know what commands have."""
    table: Any = file.content.get("app")
    if _is_table(table):
        names: dict[str, Setting | None] = {
            name: one for one in APP_SETTINGS for name in one.names
        }
        known: Known = {("app",): names}
        yield from _problems(file, ("app",), table, known)


def _problems(
    file: ConfigFile,
    place: Place,
    table: Mapping[str, Any],
    known: Known,
) -> Iterator[str]:
    settings = known[place]
    inner = {below[len(place)] for below in known if len(below) == len(place) + 1}
    inner = {name for name in inner if (*place, name) in known}
    for key, value in table.items():
        name = key.replace("_", "-")
        told = file.told((*place, key))
        if _is_table(value):
            if (*place, key) in known:
                yield from _problems(file, (*place, key), value, known)
            else:
                yield f"{told}: there is no command of that name{nearest(key, inner)}"
        elif name not in settings:
            reach = [word for word, setting in settings.items() if setting is not None]
            whose = f"`{_program(place)}` has" if place else "there is"
            yield f"{told}: {whose} no such option{nearest(name, reach)}"
        elif (setting := settings[name]) is None:
            yield f"{told}: --{name} is for one call, and only a flag gives it; take it out"
        else:
            try:
                plain(setting, value, told)
            except UsageError as error:
                yield str(error)
