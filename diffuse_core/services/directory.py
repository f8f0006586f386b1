"""What the client needs to know of the network, be it a full node's view or a pulled snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.members import Member
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Clock
    from diffuse_core.services.links import Links


class Directory(Protocol):
    """Nodes, and the links to them. `Node` and `Observer` are two."""

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def links(self) -> Links:
        """The links."""
        ...

    def members(self) -> tuple[Member, ...]:
        """All nodes known."""
        ...

    def addresses(self, node: NodeId) -> tuple[str, ...]:
        """Where `node` says it can be dialled."""
        ...

    def suspect(self, node: NodeId) -> None:
        """Note that `node` did not answer."""
        ...

    async def look_again(self) -> None:
        """Learn what is new, where this is no picture that renews itself; takes few seconds."""
        ...

    def view(self) -> NetworkView:
        """The picture of the network."""
        ...
