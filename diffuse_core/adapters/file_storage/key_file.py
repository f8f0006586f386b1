"""Key files: an identity's secret on disk, for its owner alone and never overwritten.

The first line is the 32-byte seed, the second the node id that it makes, each as 64 hexadecimal
digits. The second line is a check: one wrong digit of a seed makes another sound identity, which
nobody would notice. Files of one line, which earlier versions wrote, are taken as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import stat
from pathlib import Path

from diffuse_core.adapters.file_storage.disk import (
    make_directory,
    open_regular,
    sync_directory,
    unusable,
    write_beside,
)
from diffuse_core.domain.identity import Identity, node_text
from diffuse_core.errors import UsageError

MAX_KEY_BYTES = 256
SEED_BYTES = 32

_KEY = re.compile(rb"\s*([0-9a-fA-F]{64})(?:\s*\n\s*([0-9a-fA-F]{64}))?\s*")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OF_SERVICES = Path("/var/lib/private")
"""Where systemd keeps the state of users that it makes up."""
_OF_ACCOUNTS = Path("/var/lib")
"""Where it keeps that of other users, beside what else a machine has there."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def key_bytes(identity: Identity) -> bytes:
    """What a key file of this identity holds. A secret."""
    return f"{identity.seed.hex()}\n{node_text(identity.node)}\n".encode()


def parse_key(data: bytes) -> Identity:
    """The identity of a key file's content.

    Raises:
        ValueError: it is no key, or not that of the node it names.
    """
    found = _KEY.fullmatch(data)
    if found is None or len(data) > MAX_KEY_BYTES:
        raise ValueError("no key")
    identity = Identity(bytes.fromhex(found[1].decode()))
    if found[2] is not None and bytes.fromhex(found[2].decode()) != identity.node:
        raise ValueError("the key of another node")
    return identity


def load_identity(directory: Path, name: str) -> Identity:
    """The identity whose seed the key file holds; a new one is made when there is no file.

    Raises:
        UsageError: as `read_identity`, or the file cannot be made.
    """
    if (found := read_identity(directory, name)) is not None:
        return found
    made = Identity(secrets.token_bytes(SEED_BYTES))
    # Somebody may have been faster; what is on the disk counts.
    return made if _place(directory, name, made) else load_identity(directory, name)


def read_identity(directory: Path, name: str) -> Identity | None:
    """The identity whose seed the key file holds, or None when there is no file.

    Raises:
        UsageError: others could read or replace the file, it is damaged or no regular file, or it
            cannot be read.
    """
    path = directory / name
    try:
        check_directory(directory)
        with open_regular(path) as file:
            data = file.read(MAX_KEY_BYTES + 1)
            if not data:
                # No mode would make it of use.
                raise UsageError(
                    f"the key file {path} is empty, and so damaged; restore it, or move it away "
                    "to get a new identity"
                )
            check_private(path, os.fstat(file.fileno()))
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"the key file {path} is a link to nothing; mend it") from None
        return None
    except OSError as error:
        raise unusable(path, error) from error
    try:
        return parse_key(data)
    except ValueError as error:
        raise UsageError(
            f"the key file {path} is damaged; restore it, or move it away to get a new identity"
        ) from error


def check_apart(directory: Path, name: str, other: str) -> None:
    """See that two key files, where both are there, are not of the same key.

    Raises:
        UsageError: they are; or as `read_identity`.
    """
    one, another = read_identity(directory, name), read_identity(directory, other)
    if one is None or another is None or one.node != another.node:
        return
    ways = " or ".join(
        f"`{shlex.join(['mv', str(directory / word), f'{directory / word}.old'])}`"
        for word in (name, other)
    )
    raise UsageError(
        f"{name} and {other} in {directory} hold the same key, and a node cannot be its own "
        f"owner; move away the one that was put there by mistake, and start again, which makes a "
        f"new one: {ways}"
    )


def install_identity(directory: Path, name: str, identity: Identity) -> Path:
    """Write the key file of an identity made elsewhere; where it is now.

    Raises:
        UsageError: there is a key file already, or it cannot be made.
    """
    path = directory / name
    if not _place(directory, name, identity):
        away = shlex.join(["mv", str(path), f"{path}.old"])
        raise UsageError(f"{path} is there already, and never overwritten; first run: {away}")
    return path


def _place(directory: Path, name: str, identity: Identity) -> bool:
    """Write the file, whole or not at all; False when there is one already."""
    path = directory / name
    try:
        make_directory(directory)
        check_directory(directory)
        temporary = write_beside(path, key_bytes(identity))
        try:
            # A link fails where a file is, and shows it whole: two processes agree on one key.
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        sync_directory(directory)
    except OSError as error:
        raise unusable(path, error) from error
    return True


def check_directory(directory: Path) -> None:
    """Who can write to a directory can put another key into it."""
    if os.name != "posix":
        return
    found = directory.stat()
    named = shlex.quote(str(directory))
    if found.st_uid != os.geteuid():
        raise UsageError(
            f"the state directory {directory} belongs to another user (uid {found.st_uid}), who "
            f"could replace the keys in it; {_to_own(directory)}"
        )
    if found.st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"others may write to the state directory {directory} (mode "
            f"{found.st_mode & 0o777:o}), and could replace the keys in it; run: "
            f"chmod go-w {named}"
        )


def _to_own(directory: Path) -> str:
    above = directory.resolve().parents
    asked = "sudo diffuse service ask COMMAND"
    if _OF_SERVICES in above:
        return f"it is that of a service: {asked}"
    own = f"give another --state-dir, or run: chown {os.geteuid()} {shlex.quote(str(directory))}"
    return f"if it is that of a service: {asked}; else {own}" if _OF_ACCOUNTS in above else own


def check_private(path: Path, found: os.stat_result) -> None:
    """Who else can read a secret has it; who else owns it can replace it."""
    if os.name != "posix":
        return
    named = shlex.quote(str(path))
    if found.st_uid != os.geteuid():
        raise UsageError(
            f"the key file {path} belongs to another user (uid {found.st_uid}); move it away, or "
            f"run: chown {os.geteuid()} {named}"
        )
    if found.st_mode & _OTHERS:
        raise UsageError(
            f"the key file {path} can be used by others (mode {found.st_mode & 0o777:o}); run: "
            f"chmod 600 {named}"
        )
