"""Rows that come for the Sessions of a Stage, and what keeps them flowing.

Whose word counts for what: the Client's for the prompt and for credits, and that of the nodes
beside this one on the Route of the moment for what they give and take. Stages name a Session as
`domain.session.common_name` does, so that nobody gets between by an id that he chose; anything
else is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Credit, ForwardHidden, ForwardTokens, RowsRun
from diffuse_core.domain.session import common_name
from diffuse_core.domain.token_line import Tokens
from diffuse_core.errors import Refused
from diffuse_core.services.stage_outlet import NeighbourLost
from diffuse_core.services.stage_pace import CREDIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from diffuse_core.errors import RefusalReason
    from diffuse_core.services.links import Link, Links
    from diffuse_core.services.stage_audit import StageAudits
    from diffuse_core.services.stage_pace import Pace
    from diffuse_core.services.stage_run import StageRun

    End = Callable[[StageRun, bytes, RefusalReason, str], None]
    """Done with a Session whose rows cannot be taken, by whose fault, and why."""


class StageRows:
    """Hands each Session what arrives for it. `runs` has them by the name between Stages."""

    def __init__(
        self,
        own: NodeId,
        links: Links,
        pace: Pace,
        runs: Mapping[bytes, StageRun],
        audits: StageAudits,
        pause: End,
        fail: End,
    ) -> None:
        """`pause` keeps a Session for another to take a node's place, `fail` frees it."""
        self._own = own
        self._links = links
        self._pace = pace
        self._runs = runs
        self._audits = audits
        self._pause = pause
        self._fail = fail
        links.handle(ForwardTokens, self._on_tokens)
        links.handle(ForwardHidden, self._on_hidden)
        links.handle(RowsRun, self._on_rows_run)
        links.handle(Credit, self._on_credit)
        # What is on the way of every token does not wait for its link's turn.
        links.handle_promptly(ForwardTokens, self._take_tokens)
        links.handle_promptly(ForwardHidden, self._take_hidden)

    def close(self) -> None:
        """Handle nothing any more."""
        self._links.unhandle(ForwardTokens, ForwardHidden, RowsRun, Credit)

    async def _on_tokens(self, link: Link, message: ForwardTokens, body: memoryview) -> None:
        self._take_tokens(link, message, body)

    async def _on_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> None:
        self._take_hidden(link, message, body)

    def _take_tokens(self, link: Link, message: ForwardTokens, _body: memoryview) -> bool:
        run = self._runs.get(message.session)
        if run is None:
            self._feed(link, message)
        elif run.state.is_first and link.remote == run.state.tail.node:
            self._ring(run, link, message)
        return True

    def _feed(self, link: Link, message: ForwardTokens) -> None:
        """Take what the Client gives: its prompt, and what was drawn before a loss."""
        run = self._runs.get(common_name(link.remote, message.session))
        if run is None or not run.state.is_first or not run.listens(message.epoch):
            return
        run.hear()
        try:
            run.intake.feed(Tokens(message.position, message.tokens))
        except Refused as error:
            self._fail(run, self._own, "invalid", str(error))

    def _ring(self, run: StageRun, link: Link, message: ForwardTokens) -> None:
        """Take what the last Stage drew; that stands behind the prompt."""
        if message.position < run.state.prompt or not run.listens(message.epoch):
            return
        tokens = Tokens(message.position, message.tokens)
        if tokens.end > run.state.budget:
            # They may come early, and would wait here.
            text = f"tokens came round up to position {tokens.end}, beyond the budget"
            self._pause(run, link.remote, "invalid", text)
            return
        try:
            run.outlet.source = link
            run.intake.ring(tokens, message.marks)
        except Refused as error:
            self._pause(run, link.remote, "invalid", str(error))

    def _take_hidden(self, link: Link, message: ForwardHidden, body: memoryview) -> bool:
        run = self._runs.get(message.session)
        if run is None or run.state.before is None or link.remote != run.state.before.node:
            return True
        if not run.listens(message.epoch):
            return True
        try:
            run.intake.take_hidden(message, body)
            run.outlet.source = link
        except Refused as error:
            self._pause(run, link.remote, "invalid", str(error))
        return True

    async def _on_rows_run(self, link: Link, message: RowsRun, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is None:
            self._audits.rows_run(link, message)
            return
        if run.state.after is None or link.remote != run.state.after.node:
            return
        if not run.listens(message.epoch):
            return
        try:
            run.state.count_ran_after(message.rows)
            run.outlet.has_room()
        except Refused as error:
            self._pause(run, link.remote, "invalid", str(error))

    async def _on_credit(self, link: Link, message: Credit, _body: memoryview) -> None:
        await self._pace.turn(link.remote, CREDIT)
        run = self._runs.get(common_name(link.remote, message.session))
        if run is None or not run.state.is_last:
            return
        run.hear()
        run.state.draws.grant(message.tokens)
        if not run.outlet.flowing:
            return
        try:
            await run.outlet.go_round()
        except NeighbourLost as error:
            self._pause(run, NodeId(run.state.ring.node), "lost", str(error))
        except Refused as error:
            self._fail(run, self._own, error.reason, str(error))
