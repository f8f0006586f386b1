"""Reconciliation: what a Pull's digest says, and what is pushed in answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from diffuse_core.domain.messages import MAX_DIGEST, MAX_PUSH, Push, Rumour

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


def digest(directory: Directory, stance: Stance) -> tuple[Rumour, ...]:
    """Everything known, as (id, sequence, belief); those that left count as dead."""
    rumours = [_rumour(node, entry, stance) for node, entry in directory.items()]
    return tuple(rumours[:MAX_DIGEST])


def answer_member(
    theirs: Sequence[Rumour], directory: Directory, stance: Stance
) -> Iterator[Push]:
    """What a member with the digest `theirs` lacks.

    That is newer records, and beliefs about sequences it knows or is about to know. Records of
    the dead are not pushed to those that never knew them.
    """
    known = {rumour.node: rumour for rumour in theirs}
    records: list[SignedRecord] = []
    rumours: list[Rumour] = []
    for about, entry in directory.items():
        have = known.get(about)
        ours = _rumour(about, entry, stance)
        if have is None:
            if entry.gone_at is None:
                records.append(entry.signed)
            continue
        if have.sequence < ours.sequence:
            records.append(entry.signed)
        if have.sequence <= ours.sequence and "alive" != ours.liveness != have.liveness:
            rumours.append(ours)
    return _pushes(records, rumours)


def answer_observer(
    directory: Directory, stance: Stance, shown: Callable[[Entry], bool]
) -> Iterator[Push]:
    """All that is shown, with what we believe of it: for those that only want to look."""
    entries = [(node, entry) for node, entry in directory.items() if shown(entry)]
    return _pushes(
        [entry.signed for _, entry in entries],
        [_rumour(node, entry, stance) for node, entry in entries],
    )


def _rumour(node: NodeId, entry: Entry, stance: Stance) -> Rumour:
    liveness: Liveness = "dead" if entry.record.left else stance(node)
    return Rumour(node, entry.record.sequence, liveness)


def _pushes(records: Iterable[SignedRecord], rumours: Sequence[Rumour]) -> Iterator[Push]:
    """Cut into Pushes of bounded size; the rumours come with the last."""
    chunk: list[SignedRecord] = []
    size = 0
    for signed in records:
        weight = len(signed.payload) + RECORD_OVERHEAD
        if len(chunk) == MAX_PUSH or size + weight > MAX_PUSH_BYTES:
            yield Push(records=tuple(chunk), last=False)
            chunk, size = [], 0
        chunk.append(signed)
        size += weight
    if chunk and size + RUMOUR_BYTES * len(rumours) > MAX_PUSH_BYTES:
        yield Push(records=tuple(chunk), last=False)
        chunk = []
    yield Push(records=tuple(chunk), rumours=tuple(rumours), last=True)
