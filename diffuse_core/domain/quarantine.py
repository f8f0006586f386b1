"""Nodes that this client does not use for a day, because audits found that they compute wrongly.

It is kept on this machine and told to nobody: an accusation that spreads is a weapon. Who is only
doubtful, because it or another must be at fault, is avoided while there are others; if it is so
again, beside somebody else, it is the one. What is read back is a file that anybody may have
written: bounded and typed, or refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import Digest32

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY_S = 24 * 3600.0
MOST_ENTRIES = 256
MAX_FILE_BYTES = 64 * 2**10

_Unix = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]


class Entry(msgspec.Struct, frozen=True):
    """A node, and until when (Unix time) it counts; `beside` is who else may be at fault."""

    node: Digest32
    until: _Unix
    beside: Digest32 | None = None

    @property
    def id(self) -> NodeId:
        """Its node id."""
        return NodeId(bytes.fromhex(self.node))


class _File(msgspec.Struct, frozen=True):
    version: Literal[1]
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MOST_ENTRIES)]


_decoder = msgspec.json.Decoder(_File)


class Quarantine:
    """Whom this client does not use. Times are Unix times in seconds."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def bar(self, node: NodeId, now: float) -> None:
        """Use a node no more for a day."""
        self._add(Entry(node.hex(), now + DAY_S), now)

    def doubt(self, one: NodeId, other: NodeId, now: float) -> set[NodeId]:
        """One of two is at fault; who is barred, because it was doubtful beside others before."""
        guilty = set()
        for node, beside in ((one, other), (other, one)):
            before = {entry.beside for entry in self.entries(now) if entry.id == node}
            if before - {beside.hex(), None}:
                guilty.add(node)
        for node, beside in ((one, other), (other, one)):
            if node in guilty:
                self.bar(node, now)
            elif not guilty:
                self._add(Entry(node.hex(), now + DAY_S, beside.hex()), now)
        return guilty

    def suspect(self, node: NodeId, now: float) -> None:
        """A node may be at fault, or whoever says so."""
        self._add(Entry(node.hex(), now + DAY_S, "0" * 64), now)

    def barred(self, now: float) -> set[NodeId]:
        """Nodes that are not to be used."""
        return {entry.id for entry in self.entries(now) if entry.beside is None}

    def doubtful(self, now: float) -> set[NodeId]:
        """Nodes that are to be used where no other will do."""
        return {entry.id for entry in self.entries(now)} - self.barred(now)

    def entries(self, now: float) -> list[Entry]:
        """What counts still."""
        # A clock that was set back must not make a day of a year.
        return [entry for entry in self._entries if now < entry.until <= now + DAY_S]

    def _add(self, entry: Entry, now: float) -> None:
        same = (entry.node, entry.beside)
        kept = [one for one in self.entries(now) if (one.node, one.beside) != same]
        self._entries = [*kept, entry][-MOST_ENTRIES:]

    def encoded(self, now: float) -> bytes:
        """The file."""
        return msgspec.json.encode(_File(1, tuple(self.entries(now))))


def read_quarantine(data: bytes | None) -> Quarantine:
    """Read a file; one that is damaged or missing bars nobody."""
    if data is None or len(data) > MAX_FILE_BYTES:
        return Quarantine()
    try:
        return Quarantine(_decoder.decode(data).entries)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Quarantine()
