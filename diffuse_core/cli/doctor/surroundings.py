"""Findings about disk, ports, the terminal and the system's clock."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, note, ok, problem, warning
from diffuse_core.settings import DEFAULT_PORT, PORT_TRIES, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from diffuse_core.adapters.checkup.places import PlaceFacts
    from diffuse_core.adapters.checkup.ports import PortFacts
    from diffuse_core.adapters.checkup.screen import ScreenFacts

LEAST_CACHE = 200 * 2**20
"""The demo model while it is unpacked."""
LEAST_STATE = 2**20
FEW_INODES = 0.01
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
REMOTE = ("nfs", "nfs4", "cifs", "smbfs", "smb2", "smb3", "9p", "fuse.sshfs", "afs", "ceph")
COLUMNS, ROWS = 80, 24


def judge_place(name: str, variable: str, facts: PlaceFacts, least: int) -> Finding:
    """Whether a directory can be used. `variable` says how to take another one."""
    where = str(facts.path) if facts.exists else f"{facts.path} (not made yet)"
    kind = f" on {facts.filesystem}" if facts.filesystem else ""
    found = f"{where}{kind}, {size_text(facts.free)} free"
    told = {
        "path": str(facts.path),
        "free": facts.free,
        "filesystem": facts.filesystem,
        "inodes": facts.inodes,
    }
    other = f"{variable} takes another directory"
    if facts.full or (facts.problem and facts.free == 0):
        step = f"nothing more can be written: make room there; or {other}"
        return problem(name, f"{found}: {facts.problem}", step, **told)
    if facts.problem:
        step = f"give this user the right to write there; or {other}"
        return problem(name, f"{found}: {facts.problem}", step, **told)
    if facts.inodes is not None and facts.inodes < FEW_INODES:
        step = f"there is room for few more files (df -i): remove some; or {other}"
        return warning(name, f"{found}, but hardly an inode", step, **told)
    if facts.free < least:
        return warning(name, found, f"make room there; or {other}", **told)
    if facts.filesystem in IN_MEMORY:
        step = f"it is memory, gone at the next start of the machine; {other}"
        return note(name, found, step, **told)
    if facts.filesystem in REMOTE:
        step = f"it is on another machine: slow, and locks may not hold; {other}"
        return warning(name, found, step, **told)
    return ok(name, found, **told)


def judge_no_place(name: str, variable: str, path: Path, file: str) -> Finding:
    """Of a directory that cannot be: a file of its name, or of one above it, is there."""
    step = f"move that file away; or {variable} takes another directory"
    return problem(name, f"{path}: {file} is no directory, but a file", step, path=str(path))


def judge_listen(facts: PortFacts, own_pid: int | None) -> Finding:
    """Whether a node can listen where it was asked to."""
    where = f"{facts.host}:{facts.port}"
    told = {"port": facts.port, "pid": facts.pid}
    if not facts.problem:
        return ok("port", f"{where} is free", **told)
    if facts.pid is not None and facts.pid == own_pid:
        return ok("port", f"the node that runs here listens at {where}", **told)
    step = f"choose another with --listen{_or_stop(facts)}"
    return problem("port", f"{where}: {facts.problem}{_by(facts)}", step, **told)


def judge_default_ports(facts: Sequence[PortFacts], own_pid: int | None) -> Finding:
    """Which of the ports that a node tries is free; `facts` are of those up to the first free."""
    last = facts[-1]
    told = {"port": last.port if not last.problem else None}
    own = next((one for one in facts if one.pid is not None and one.pid == own_pid), None)
    if own is not None:
        return ok("port", f"the node that runs here listens at port {own.port}", **told)
    if last.problem:
        step = "end what has them, or give one with --listen HOST:PORT"
        end = DEFAULT_PORT + PORT_TRIES - 1
        return problem("port", f"none of {DEFAULT_PORT} to {end} is free", step, **told)
    if len(facts) == 1:
        return ok("port", f"{last.port} is free", **told)
    first = facts[0]
    step = f"a node takes {last.port}; others need that port with --bootstrap"
    return note("port", f"{first.port} is {first.problem}{_by(first)}", step, **told)


def judge_serve(facts: PortFacts, named: bool) -> Finding:
    """Whether `diffuse serve` can listen. `named`: the port was asked for."""
    where = f"{facts.host}:{facts.port}"
    told = {"port": facts.port, "pid": facts.pid}
    if not facts.problem:
        return ok("serve port", f"{where} is free", **told)
    found = f"{where}: {facts.problem}{_by(facts)}"
    step = f"give `diffuse serve` another --port{_or_stop(facts)}"
    tell = problem if named else note
    return tell("serve port", found, step, **told)


def _by(facts: PortFacts) -> str:
    if facts.pid is None:
        return ", by a program that is not told" if facts.taken else ""
    return f", by {facts.holder or 'process'} (pid {facts.pid})"


def _or_stop(facts: PortFacts) -> str:
    if facts.pid is None:
        return f", or see who has it: ss -ltnp 'sport = :{facts.port}'" if facts.taken else ""
    return f", or end what has it: {shlex.join(['kill', str(facts.pid)])}"


def judge_screen(facts: ScreenFacts) -> Finding:
    """Whether the app and streamed answers look as they should."""
    told = {"term": facts.term, "encoding": facts.encoding, "size": facts.size}
    utf8 = facts.encoding.replace("-", "").replace("_", "") == "utf8"
    size = "no terminal" if facts.size is None else f"{facts.size[0]}x{facts.size[1]}"
    extras = [
        word
        for word, there in (
            ("true colour", facts.true_color),
            ("NO_COLOR", facts.no_color),
            ("tmux or screen", facts.tmux),
            ("ssh", facts.remote),
        )
        if there
    ]
    found = ", ".join([f"TERM={facts.term or '(not set)'}", facts.encoding, size, *extras])
    if not utf8:
        step = "signs and letters are lost; run: export LC_ALL=C.UTF-8"
        return warning("terminal", found, step, **told)
    if facts.term in ("", "dumb") and facts.size is not None:
        step = "the app cannot draw; use a terminal with cursor control, or `diffuse chat`"
        return warning("terminal", found, step, **told)
    if facts.size is not None and (facts.size[0] < COLUMNS or facts.size[1] < ROWS):
        step = f"the app shows less below {COLUMNS}x{ROWS}: enlarge the window"
        return note("terminal", found, step, **told)
    return ok("terminal", found, **told)
