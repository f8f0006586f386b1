"""One Session from the Client's side: opened on every Stage, tokens in, closed everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Literal

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    MAX_ROWS,
    CloseSession,
    Credit,
    ForwardTokens,
    Hop,
    OpenSession,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
    WatchSession,
)
from diffuse_core.errors import ChannelClosed, RefusalReason, Refused, StagesLost, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.decoding import DecodingParams
    from diffuse_core.services.links import Link, Links

CREDITS = 64
OPEN_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 2.0
FIRST_TOKEN_S = 120.0
FIRST_TOKEN_PER_ROW_S = 0.5
NEXT_TOKEN_S = 60.0
WATCH_S = 4.0
"""After so long without a token Stages are asked whether they live; as long they may take."""


class LinkEnded:
    """The link that answers came over is no more; stands among them."""


FromStage = SessionOpened | SessionRefused | TokensDrawn | SessionFailed | SessionAlive
Answer = FromStage | LinkEnded


How = Literal["undialled", "ended", "silent", "said"]
"""How a Stage was lost: it could not be dialled; a link to it ended, here or at another Stage; it
stopped answering; or it said itself that it failed, or did what it must not.
"""


class StageBlamed(StagesLost):
    """A Stage failed or did not answer.

    `node` is whom to blame, `part` its layers; `why` says what happened. `accuser` is the Stage
    that said so, None when we saw it ourselves; then `relayed_through` is the Sentinel between.
    """

    def __init__(
        self,
        hop: Hop,
        why: str,
        how: How,
        reason: RefusalReason = "lost",
        *,
        accuser: NodeId | None = None,
        relayed_through: NodeId | None = None,
    ) -> None:
        self.node = NodeId(hop.node)
        self.part = hop.part
        self.why = why
        self.how = how
        self.reason: RefusalReason = reason
        self.accuser = accuser
        self.relayed_through = relayed_through
        super().__init__(f"{self.name} failed: {why}")

    @property
    def name(self) -> str:
        """The Stage, in words."""
        return f"stage {short_text(self.node)} (layers {self.part})"


class StageDeclined(Refused):
    """A Stage refused the Session; `node` is the one to avoid for this generation."""

    def __init__(self, node: NodeId, message: str, reason: RefusalReason) -> None:
        super().__init__(message, reason)
        self.node = node


class SessionDesk:
    """Hands what Stages answer to the run it belongs to."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self._runs: dict[bytes, ClientRun] = {}
        links.handle(SessionOpened, self._on_answer)
        links.handle(SessionRefused, self._on_answer)
        links.handle(TokensDrawn, self._on_answer)
        links.handle(SessionFailed, self._on_answer)
        links.handle(SessionAlive, self._on_answer)
        links.on_ended(self._on_ended)

    def add(self, run: ClientRun) -> None:
        """Deliver the answers of this run's Session to it."""
        self._runs[run.session] = run

    def remove(self, run: ClientRun) -> None:
        """Stop delivering."""
        self._runs.pop(run.session, None)

    async def _on_answer(self, link: Link, message: FromStage, _body: memoryview) -> None:
        run = self._runs.get(message.session)
        if run is not None and link in run.stages:
            run.deliver(link, message)

    def _on_ended(self, link: Link) -> None:
        for run in self._runs.values():
            if link in run.stages:
                run.deliver(link, LinkEnded())


class ClientRun:
    """A Session over a given Route."""

    def __init__(self, desk: SessionDesk, route: Sequence[Hop]) -> None:
        self._desk = desk
        self.route = tuple(route)
        self.session = secrets.token_bytes(16)
        self.stages: list[Link] = []
        self._answers: asyncio.Queue[tuple[Link, Answer]] = asyncio.Queue(2 * CREDITS + 256)
        self._received = 0
        self._granted = CREDITS
        self._prompt = 0
        self._alive: set[NodeId] | None = None

    def deliver(self, link: Link, answer: Answer) -> None:
        """Queue an answer; a Stage that floods us loses the surplus, and with it the Session."""
        if isinstance(answer, SessionAlive):
            if self._alive is not None:
                self._alive.add(link.remote)
            return
        with contextlib.suppress(asyncio.QueueFull):
            self._answers.put_nowait((link, answer))

    async def open(
        self, model: str, fingerprint: str, budget: int, prompt: int, decoding: DecodingParams
    ) -> None:
        """Open the Session on every Stage at once.

        Raises:
            StageBlamed: a Stage could not be reached or did not answer.
            StageDeclined: a Stage refused it.
        """
        self._prompt = prompt
        links = await asyncio.gather(*map(self._dial, self.route), return_exceptions=True)
        for link in links:
            if isinstance(link, BaseException):
                raise link
            self.stages.append(link)
        self._desk.add(self)
        for index, link in enumerate(self.stages):
            message = OpenSession(
                self.session,
                model,
                fingerprint,
                self.route,
                index,
                budget,
                prompt,
                decoding,
                CREDITS,
            )
            await self._send(link, message)
        waiting = set(self.stages)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                while waiting:
                    link, answer = await self._next_answer(OPEN_TIMEOUT_S)
                    self._raise_failure(link, answer)
                    waiting.discard(link)
        except TimeoutError:
            late = next(iter(waiting))
            raise self._blame(late, "it did not open the session in time", "silent") from None

    async def _dial(self, hop: Hop) -> Link:
        try:
            return await self._desk.links.to(NodeId(hop.node), hop.addresses)
        except Unreachable as error:
            raise StageBlamed(hop, f"it cannot be reached: {error}", "undialled") from error

    async def _send(
        self, link: Link, message: OpenSession | ForwardTokens | Credit | WatchSession
    ) -> None:
        try:
            await link.send(message)
        except ChannelClosed as error:
            raise self._blame(link, str(error), "ended") from error

    def _blame(
        self, link: Link, why: str, how: How, reason: RefusalReason = "lost"
    ) -> StageBlamed:
        hop, through = self.route[self.stages.index(link)], link.relayed_through
        return StageBlamed(hop, why, how, reason, relayed_through=through)

    def _raise_failure(self, link: Link, answer: Answer) -> None:
        if isinstance(answer, LinkEnded):
            # A Sentinel that ends circuits time and again is no better than a silent one.
            self._desk.links.doubt(link)
            raise self._blame(link, "the link to it ended", "ended")
        if isinstance(answer, SessionRefused):
            text = f"host {short_text(link.remote)} declined: {answer.detail}"
            raise StageDeclined(link.remote, text, answer.reason)
        if isinstance(answer, SessionFailed):
            why = answer.detail
            named = next((hop for hop in self.route if hop.node == answer.node), None)
            # Only a node of the Route can be to blame; who names another is.
            if named is None or named.node == link.remote:
                raise self._blame(link, why, "said", answer.reason)
            raise StageBlamed(named, why, "ended", answer.reason, accuser=link.remote)

    async def feed(self, prompt: Sequence[int], drawn: Sequence[int] = ()) -> None:
        """Send the first Stage what comes before the next token: the prompt and what was drawn.

        A row's last bits may depend on the rows computed with it. So that the rest is the same as
        if the Session had not been taken up, a prompt goes in the same pieces, and each token
        that was drawn alone, as it went round the ring.
        """
        pieces = [prompt[at : at + MAX_ROWS] for at in range(0, len(prompt), MAX_ROWS)]
        pieces += [(token,) for token in drawn]
        at = 0
        for piece in pieces:
            tokens = ForwardTokens(self.session, at, tuple(piece))
            await self._send(self.stages[0], tokens)
            at += len(piece)

    async def token(self) -> TokensDrawn:
        """The next token.

        Raises:
            StageBlamed: a Stage failed, went away, broke the order, or sent nothing in time.
        """
        first = self._received == 0
        limit = FIRST_TOKEN_S + FIRST_TOKEN_PER_ROW_S * self._prompt if first else NEXT_TOKEN_S
        last = self.stages[-1]
        link, answer = await self._next_answer(limit)
        self._raise_failure(link, answer)
        if not isinstance(answer, TokensDrawn) or link is not last:
            raise self._blame(link, "it spoke out of turn", "said", "invalid")
        if answer.position != self._prompt + self._received:
            raise self._blame(link, "it lost its position", "said", "invalid")
        self._received += 1
        if answer.finish is None and self._granted - self._received <= CREDITS // 2:
            self._granted += CREDITS // 2
            await self._send(last, Credit(self.session, CREDITS // 2))
        return answer

    async def _next_answer(self, limit: float) -> tuple[Link, Answer]:
        """The next answer; while none comes, Stages that stopped answering are found out."""
        self._alive = None
        deadline = asyncio.get_running_loop().time() + limit
        while True:
            try:
                async with asyncio.timeout(WATCH_S):
                    return await self._answers.get()
            except TimeoutError:
                await self._check_roll()
            if asyncio.get_running_loop().time() > deadline:
                why = f"it sent no token for {limit:.0f} s"
                raise self._blame(self.stages[-1], why, "silent")
            self._alive = set()
            for link in self.stages:
                await self._send(link, WatchSession(self.session))

    async def _check_roll(self) -> None:
        """Raise when a Stage that was asked whether it lives has not answered."""
        if self._alive is None:
            return
        silent = [link for link in self.stages if link.remote not in self._alive]
        for link in silent:
            if link.relayed_through is None:
                raise self._blame(link, "it stopped answering", "silent")
        # Perhaps only the Sentinel between us fell silent: these links are of no more use.
        for link in silent:
            self._desk.links.doubt(link)
        if silent:
            why = "it stopped answering through its sentinel"
            problem = self._blame(silent[0], why, "ended")
            await asyncio.gather(*(link.close() for link in silent))
            raise problem

    async def close(self) -> None:
        """Free the Session on every Stage; bounded, and never raises."""
        self._desk.remove(self)
        closing = (link.send(CloseSession(self.session)) for link in self.stages)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*closing, return_exceptions=True)
