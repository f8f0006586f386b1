"""Verdicts: which signed records are sound, found out once per content.

Checking a signature takes some 60 µs, and gossip brings the same bytes many times.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from diffuse_core.domain.records import MAX_RECORD_BYTES, open_record, record_node

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import Record, SignedRecord

MAX_VERDICTS = 8192
OF_ONE = 4
"""Of each node: gossip brings its newest record again and again, and now and then the one before.
A busy Host signs one every second or two, and each is about 2 kB of memory."""
UNSOUND = 256


class Verdicts:
    """What was found of the latest contents, `most` in all; others are checked again.

    A verdict depends on nothing but the bytes, so several directories of one process may share it.
    """

    def __init__(self, most: int = MAX_VERDICTS) -> None:
        self._most = most
        self._found: OrderedDict[bytes, Record | None] = OrderedDict()
        self._keys: dict[NodeId | None, list[bytes]] = {}
        """Those of `_found` by node, the oldest first; of None those that are not sound."""

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
        record = self._found[key] = open_record(signed)
        whose = _whose(record)
        mine = self._keys.setdefault(whose, [])
        mine.append(key)
        if len(mine) > (UNSOUND if whose is None else OF_ONE):
            del self._found[mine.pop(0)]
        if len(self._found) > self._most:
            self._forget(*self._found.popitem(last=False))
        return record

    def _forget(self, key: bytes, record: Record | None) -> None:
        whose = _whose(record)
        self._keys[whose].remove(key)
        if not self._keys[whose]:
            del self._keys[whose]


def _whose(record: Record | None) -> NodeId | None:
    return None if record is None else record_node(record)
