"""Buckets: a summary of who holds which records, by which two nodes find where they differ.

Node ids are spread evenly by their first byte over 256 buckets. A bucket's hash covers the ids and
sequences in it, so two tables are compared by 2 KiB, and only buckets that differ need a digest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diffuse_core.domain.identity import NodeId

BUCKETS = 256
HASH_BYTES = 8
SUMMARY_BYTES = BUCKETS * HASH_BYTES


class Buckets:
    """Sequences by node id, summarised; only what changed is hashed again."""

    def __init__(self) -> None:
        self._sequences: list[dict[NodeId, int]] = [{} for _ in range(BUCKETS)]
        self._hashes = [_hash({})] * BUCKETS
        self._stale: set[int] = set()

    def put(self, node: NodeId, sequence: int) -> None:
        """The record of `node` that counts has this sequence."""
        self._sequences[node[0]][node] = sequence
        self._stale.add(node[0])

    def discard(self, node: NodeId) -> None:
        """No record of `node` counts."""
        if self._sequences[node[0]].pop(node, None) is not None:
            self._stale.add(node[0])

    def summary(self) -> bytes:
        """The hashes of all buckets in order, SUMMARY_BYTES long."""
        for bucket in self._stale:
            self._hashes[bucket] = _hash(self._sequences[bucket])
        self._stale.clear()
        return b"".join(self._hashes)


def different(ours: bytes, theirs: bytes) -> bytes:
    """The numbers of the buckets in which two summaries differ, a byte each."""
    steps = range(0, SUMMARY_BYTES, HASH_BYTES)
    return bytes(
        bucket
        for bucket, at in enumerate(steps)
        if ours[at : at + HASH_BYTES] != theirs[at : at + HASH_BYTES]
    )


def within(buckets: bytes, nodes: Iterable[NodeId]) -> Iterator[NodeId]:
    """Those of `nodes` that belong to `buckets`; all of them when `buckets` is empty."""
    chosen = frozenset(buckets)
    return (node for node in nodes if not chosen or node[0] in chosen)


def _hash(sequences: dict[NodeId, int]) -> bytes:
    held = b"".join(
        node + sequence.to_bytes(8, "big") for node, sequence in sorted(sequences.items())
    )
    return hashlib.blake2b(held, digest_size=HASH_BYTES).digest()
