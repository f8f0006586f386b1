"""Reconciliation: what a Pull's digest says, and what is pushed in answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from diffuse_core.domain.buckets import within
from diffuse_core.domain.messages import MAX_DIGEST, MAX_PUSH, Pull, Push, Rumour

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diffuse_core.domain.directory import Directory, Entry
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.records import SignedRecord
    from diffuse_core.domain.view import Liveness

MAX_PUSH_BYTES = 256 * 2**10
RECORD_OVERHEAD = 80
RUMOUR_BYTES = 56

Stance = Callable[["NodeId"], "Liveness"]


def digest(
    directory: Directory, stance: Stance, latest: int, buckets: bytes = b""
) -> tuple[Rumour, ...]:
    """Everything known of `buckets` (none means all), as (id, sequence, belief).

    Those that left count as dead; what lies beyond the sequence `latest` is left out.
    """
    rumours = [rumour for rumour, _ in _held(directory, stance, latest, buckets)]
    return tuple(rumours[:MAX_DIGEST])


def lacking(
    member: NodeId, pull: Pull, directory: Directory, stance: Stance, latest: int
) -> list[tuple[Rumour, SignedRecord]]:
    """What a member lacks by the digest of its Pull: newer records, announced.

    Not those of the dead, which would only look alive again, but its own. A farewell is told to
    who knew the node.
    """
    known = {rumour.node: rumour.sequence for rumour in pull.digest}
    return [
        (ours, entry.signed)
        for ours, entry in _held(directory, stance, latest, pull.buckets)
        if known.get(ours.node, -1) < ours.sequence
        and (
            entry.gone_at is None
            or ours.node == member
            or (entry.record.left and ours.node in known)
        )
    ]


def observed(
    directory: Directory, stance: Stance, shown: Callable[[Entry], bool]
) -> list[tuple[Rumour, SignedRecord]]:
    """All that is shown, with what we believe of it: for those that only want to look."""
    return [
        (rumour_of(node, entry, stance), entry.signed)
        for node, entry in directory.items()
        if shown(entry)
    ]


def weight(signed: SignedRecord) -> int:
    """About the bytes that a record takes in a message."""
    return len(signed.payload) + RECORD_OVERHEAD


def pushes(records: Iterable[SignedRecord], rumours: Sequence[Rumour] = ()) -> Iterator[Push]:
    """Cut into Pushes of bounded size; the rumours come with the last."""
    chunk: list[SignedRecord] = []
    size = 0
    for signed in records:
        more = weight(signed)
        if len(chunk) == MAX_PUSH or size + more > MAX_PUSH_BYTES:
            yield Push(records=tuple(chunk), last=False)
            chunk, size = [], 0
        chunk.append(signed)
        size += more
    if chunk and size + RUMOUR_BYTES * len(rumours) > MAX_PUSH_BYTES:
        yield Push(records=tuple(chunk), last=False)
        chunk = []
    yield Push(records=tuple(chunk), rumours=tuple(rumours), last=True)


def rumour_of(node: NodeId, entry: Entry, stance: Stance) -> Rumour:
    """What we say of `node`."""
    liveness: Liveness = "dead" if entry.record.left else stance(node)
    return Rumour(node, entry.record.sequence, liveness)


def _held(
    directory: Directory, stance: Stance, latest: int, buckets: bytes
) -> Iterator[tuple[Rumour, Entry]]:
    for node in within(buckets, [node for node, _ in directory.items()]):
        entry = directory.get(node)
        if entry is not None and entry.record.sequence <= latest:
            yield rumour_of(node, entry, stance), entry
