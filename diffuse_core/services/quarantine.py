"""The list of nodes in quarantine, as it is kept on this machine; see domain.quarantine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from diffuse_core.domain.quarantine import Quarantine, read_quarantine
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.quarantine import Entry
    from diffuse_core.ports import Clock, Storage

log = logging.getLogger(__name__)

NAME = "quarantine.json"


class QuarantineBook:
    """Reads the list whenever it is asked: other programs write it as well."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def entries(self) -> list[Entry]:
        """All that count now."""
        return self._read().entries(self._clock.wall())

    def barred(self) -> set[NodeId]:
        """Nodes that are not to be used."""
        return self._read().barred(self._clock.wall())

    def doubtful(self) -> set[NodeId]:
        """Nodes that are to be used where no other will do."""
        return self._read().doubtful(self._clock.wall())

    def bar(self, node: NodeId) -> None:
        """Use a node no more for a day."""
        self._change(lambda found, now: found.bar(node, now))

    def suspect(self, node: NodeId) -> None:
        """Use a node only where no other will do."""
        self._change(lambda found, now: found.suspect(node, now))

    def doubt(self, one: NodeId, other: NodeId) -> set[NodeId]:
        """One of two is at fault; who is barred now."""
        guilty: set[NodeId] = set()
        self._change(lambda found, now: guilty.update(found.doubt(one, other, now)))
        return guilty

    def clear(self) -> None:
        """Forget all."""
        self._storage.delete(NAME)

    def _read(self) -> Quarantine:
        try:
            return read_quarantine(self._storage.read(NAME))
        except DiffuseError as error:
            log.warning("the list of nodes in quarantine cannot be read: %s", error)
            return Quarantine()

    def _change(self, change: Callable[[Quarantine, float], object]) -> None:
        found, now = self._read(), self._clock.wall()
        change(found, now)
        try:
            self._storage.write(NAME, found.encoded(now))
        except DiffuseError as error:
            log.warning("the list of nodes in quarantine cannot be kept: %s", error)
