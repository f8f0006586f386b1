"""Whether a unit of the machine could run on this one: what systemd would fail at only later."""

from __future__ import annotations

import shlex
import stat
import sys
from typing import TYPE_CHECKING

from diffuse_core.cli.service.unit import CONFIG, SECRETS
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.cli.service.unit import Unit


def check_here(unit: Unit) -> None:
    """See that its user is there and can reach what it needs.

    Raises:
        UsageError: it could not begin here.
    """
    if unit.scope == "user":
        return
    if unit.account is not None:
        if not is_user(unit.account):
            raise UsageError(
                f"--run-as: nobody is called {unit.account!r} here; `useradd --system "
                f"{unit.account}` makes such a user"
            )
        for place in unit.written():
            if not place.is_dir():
                raise UsageError(
                    f"there is no directory {place}, which the service is to write to; run: "
                    f"install -d -m 0700 -o {unit.account} {shlex.quote(str(place))}"
                )
        return
    for path in unit.read():
        if (shut := closed(path)) is not None:
            raise UsageError(
                f"the user that systemd makes up for this service could not read {path}, for "
                f"{shut} is closed to others: give --run-as USER, or {_instead(path, unit)}"
            )


def _instead(path: Path, unit: Unit) -> str:
    if path == CONFIG:
        secrets = SECRETS.replace("%N", unit.name)
        return f"let everybody read it, and keep secrets in {secrets}"
    return "keep it where everybody can read it, as below /opt"


def closed(path: Path) -> Path | None:
    """What of a path, or of where its links lead, others may not enter or read; None: nothing.

    What is not there is not closed: a model may still come.
    """
    for place in (path, path.resolve()):
        for directory in reversed(place.parents):
            if lacks(directory, stat.S_IXOTH):
                return directory
        if lacks(place, stat.S_IROTH):
            return place
    return None


def lacks(path: Path, right: int) -> bool:
    """Whether something is there and gives others no such right."""
    try:
        return not path.stat().st_mode & right
    except OSError:
        return False


def is_user(name: str) -> bool:
    """Whether somebody has that name on this machine."""
    if sys.platform == "win32":
        return False
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
