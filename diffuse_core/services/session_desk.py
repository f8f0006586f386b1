"""Hands what Stages answer, and that links ended, to the runs of Sessions that they belong to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    Rerouted,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
)
from diffuse_core.domain.relayed_address import is_relayed
from diffuse_core.errors import Unreachable
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Collection

    from diffuse_core.domain.messages import Hop
    from diffuse_core.services.links import Link, Links

CIRCUIT_MORE_S = 0.5
"""A circuit takes more round trips than a direct link."""

FromStage = SessionOpened | SessionRefused | Rerouted | TokensDrawn | SessionFailed | SessionAlive


class Run(Protocol):
    """A Session from the Client's side."""

    @property
    def session(self) -> bytes:
        """Its id."""
        ...

    @property
    def links(self) -> Collection[Link]:
        """Those to its Stages."""
        ...

    def deliver(self, link: Link, answer: FromStage) -> None:
        """Take what a Stage said."""
        ...

    def ended(self, link: Link) -> None:
        """Take note that a link to a Stage ended."""
        ...


class SessionDesk:
    """Hands what Stages answer to the run it belongs to."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.tasks = TaskOwner("client")
        self._runs: dict[bytes, Run] = {}
        links.handle(SessionOpened, self.on_answer)
        links.handle(SessionRefused, self.on_answer)
        links.handle(Rerouted, self.on_answer)
        links.handle(TokensDrawn, self.on_answer)
        links.handle(SessionFailed, self.on_answer)
        links.handle(SessionAlive, self.on_answer)
        # A token is shown as soon as it can be, and those of many Sessions come in one piece.
        links.handle_promptly(TokensDrawn, self._on_tokens)
        links.on_ended(self._on_ended)

    async def reach(self, hop: Hop, patience: float) -> Link:
        """An open link to a Stage's node.

        It is to open within `patience` seconds, through a Sentinel within CIRCUIT_MORE_S more.

        Raises:
            Unreachable: nobody answers there, or not in time; dialling goes on meanwhile.
        """
        dialling = self.links.to(NodeId(hop.node), hop.addresses)
        if any(map(is_relayed, hop.addresses)):
            patience += CIRCUIT_MORE_S
        try:
            async with asyncio.timeout(patience):
                return await dialling
        except TimeoutError as error:
            raise Unreachable(
                f"node {short_text(hop.node)} did not answer within {patience:g} s"
            ) from error

    def add(self, run: Run) -> None:
        """Deliver the answers of this run's Session to it."""
        self._runs[run.session] = run

    def remove(self, run: Run) -> None:
        """Stop delivering."""
        self._runs.pop(run.session, None)

    async def on_answer(self, link: Link, message: FromStage, _body: memoryview) -> None:
        """Hand over what a Stage answered."""
        self._hand_over(link, message)

    def _on_tokens(self, link: Link, message: TokensDrawn, _body: memoryview) -> bool:
        self._hand_over(link, message)
        return True

    def _hand_over(self, link: Link, message: FromStage) -> None:
        run = self._runs.get(message.session)
        if run is not None and link in run.links:
            run.deliver(link, message)

    def _on_ended(self, link: Link) -> None:
        for run in self._runs.values():
            if link in run.links:
                run.ended(link)
