"""The state directory: small blobs, secret keys, and the lock that keeps it to one node."""

from diffuse_core.adapters.file_storage.blobs import FileStorage
from diffuse_core.adapters.file_storage.key_copy import export_key, parse_copy, read_copy
from diffuse_core.adapters.file_storage.key_file import (
    check_apart,
    install_identity,
    load_identity,
    read_identity,
)
from diffuse_core.adapters.file_storage.state_lock import StateLock, lock_holder

__all__ = [
    "FileStorage",
    "StateLock",
    "check_apart",
    "export_key",
    "install_identity",
    "load_identity",
    "lock_holder",
    "parse_copy",
    "read_copy",
    "read_identity",
]
