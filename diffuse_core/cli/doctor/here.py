"""The state directory, its keys, and the node that runs with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from contextlib import aclosing
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, ok, problem
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.cli.doctor.network import HereFacts
from diffuse_core.errors import DiffuseError, UsageError
from diffuse_core.settings import NODE_FILE, running_node

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.settings import NetworkOptions

KEYS = ("identity.key", "owner.key")
ATTACH_S = 4.0


def split_step(error: DiffuseError | str) -> tuple[str, str]:
    """Cause and next step of a message: it names both, the step after the last semicolon."""
    cause, mark, step = str(error).rpartition("; ")
    return (cause, step) if mark else (step, "see the message")


def judge_keys(state: Path) -> Finding:
    """Whether the keys are there, whole, and nobody else's."""
    from diffuse_core.adapters.file_storage import check_apart, read_identity

    found = []
    for name in KEYS:
        try:
            found += [name] if read_identity(state, name) is not None else []
        except UsageError as error:
            return problem("keys", *split_step(error), file=name)
    try:
        check_apart(state, *KEYS)
    except UsageError as error:
        return problem("keys", *split_step(error))
    if not found:
        return ok("keys", "none yet: the first start of a node makes them")
    return ok("keys", f"{' and '.join(found)} whole, and only this user's", keys=found)


def judge_api_key(state: Path) -> Finding | None:
    """Whether only its owner can read the key of `diffuse serve`; None where there is none."""
    from diffuse_core.adapters.file_storage.api_key import API_KEY

    path = state / API_KEY
    try:
        found = path.stat()
    except OSError:
        # None is there, or the directory cannot be read, which is told of the keys.
        return None
    mode = found.st_mode
    if not stat.S_ISREG(mode):
        return problem("api key", f"{path} is no file", "move it away: serve makes a new one")
    if os.name == "posix" and (mode & 0o077 or found.st_uid != os.geteuid()):
        what = f"{path} can be used by others (mode {mode & 0o777:o}, uid {found.st_uid})"
        return problem("api key", what, f"run: chown {os.geteuid()} {path}; chmod 600 {path}")
    return ok("api key", f"{path} is only this user's")


def _left(state: Path) -> bool:
    """Whether a node that ended left its file."""
    with contextlib.suppress(OSError):
        return (state / NODE_FILE).exists()
    return False


async def here_facts(state: Path, network: NetworkOptions) -> HereFacts:
    """What runs with this state directory, and what it tells its owner."""
    from diffuse_core.adapters.file_storage import lock_holder
    from diffuse_core.wiring import attach

    found = await in_thread(lambda: running_node(state))
    if found is None:
        return await in_thread(lambda: HereFacts(stale=_left(state), holder=lock_holder(state)))
    try:
        async with asyncio.timeout(ATTACH_S):
            attachment = await attach(state, network)
            try:
                async with aclosing(attachment.updates()) as updates:
                    update = await anext(updates)
            finally:
                with contextlib.suppress(DiffuseError):
                    await attachment.close()
    except TimeoutError:
        return HereFacts(found.pid, found.address, why="it says nothing")
    except DiffuseError as error:
        return HereFacts(found.pid, found.address, why=str(error))
    me = next((node for node in update.view.nodes if node.me), None)
    why = "" if me is not None else "it does not know itself yet"
    return HereFacts(found.pid, found.address, me=me, telemetry=update.telemetry, why=why)
