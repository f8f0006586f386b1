"""Verdicts: which signed records are sound, found out once per content.

Checking a signature takes some 60 µs, and gossip brings the same bytes many times.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from diffuse_core.domain.records import MAX_RECORD_BYTES, open_record

if TYPE_CHECKING:
    from diffuse_core.domain.records import Record, SignedRecord

MAX_VERDICTS = 8192


class Verdicts:
    """What was found of the latest `most` contents; others are checked again.

    A verdict depends on nothing but the bytes, so several directories of one process may share it.
    """

    def __init__(self, most: int = MAX_VERDICTS) -> None:
        self._most = most
        self._found: OrderedDict[bytes, Record | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def read(self, signed: SignedRecord) -> Record | None:
        """The record inside; None when it is oversized, malformed or not signed by its node."""
        if len(signed.payload) > MAX_RECORD_BYTES:
            return None
        key = hashlib.sha256(signed.signature + signed.payload).digest()
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        record = open_record(signed)
        self._found[key] = record
        if len(self._found) > self._most:
            self._found.popitem(last=False)
        return record
