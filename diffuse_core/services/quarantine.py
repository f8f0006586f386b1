"""The list of nodes in quarantine, as it is kept on this machine; see domain.quarantine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import msgspec

from diffuse_core.domain.identity import node_text
from diffuse_core.domain.quarantine import Quarantine, read_quarantine
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.quarantine import Entry
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Clock, Storage

    State = Literal["quarantined", "doubtful"]

log = logging.getLogger(__name__)

NAME = "quarantine.json"


def marked(view: NetworkView, found: Mapping[str, State]) -> NetworkView:
    """The picture with how its nodes stand with whoever looks."""
    if not found:
        return view
    nodes = tuple(
        msgspec.structs.replace(node, quarantine=found[node.node]) if node.node in found else node
        for node in view.nodes
    )
    return msgspec.structs.replace(view, nodes=nodes)


class QuarantineBook:
    """Reads the list whenever it is asked: other programs write it as well."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._complaint = ""

    def entries(self) -> list[Entry]:
        """All that count now."""
        return self._read().entries(self._clock.wall())

    def barred(self) -> set[NodeId]:
        """Nodes that are not to be used."""
        return self._read().barred(self._clock.wall())

    def doubtful(self) -> set[NodeId]:
        """Nodes that are to be used where no other will do."""
        return self._read().doubtful(self._clock.wall())

    def standings(self) -> dict[str, State]:
        """How nodes stand, by their ids in text; only those that audits found out."""
        found = self._read()
        now = self._clock.wall()
        told: dict[str, State] = {node_text(node): "doubtful" for node in found.doubtful(now)}
        return told | {node_text(node): "quarantined" for node in found.barred(now)}

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
            found = read_quarantine(self._storage.read(NAME))
        except DiffuseError as error:
            # Whoever shows the network asks every second.
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the list of nodes in quarantine cannot be read: %s", error)
            return Quarantine()
        self._complaint = ""
        return found

    def _change(self, change: Callable[[Quarantine, float], object]) -> None:
        found, now = self._read(), self._clock.wall()
        change(found, now)
        try:
            self._storage.write(NAME, found.encoded(now))
        except DiffuseError as error:
            log.warning("the list of nodes in quarantine cannot be kept: %s", error)
