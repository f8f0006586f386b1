"""One Session from the Client's side: opened on every Stage, its Route changed, closed everywhere.

Each Route of a Session has an epoch. When Stages are lost, those that stay keep what they hold and
are told the next Route (Reroute), others are opened in the places of the lost ones (OpenSession).
Once all have answered, each is told how many rows the next one holds (Resume), and the first is
fed what it lacks: so rows that were lost are computed again, and no others.

What is sent is never waited for: a Stage that reads no more must not keep the Client from hearing
of it. Links that end are told by the pool, or by the roll call.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING

from diffuse_core.domain.identity import NodeId, short_text
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardTokens,
    Hop,
    OpenSession,
    Reroute,
    Rerouted,
    Resume,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    TokensDrawn,
    WatchSession,
)
from diffuse_core.domain.session import PREFILL_ROWS
from diffuse_core.errors import ChannelClosed, RefusalReason, Refused, StagesLost, Unreachable
from diffuse_core.services.losses import How, Problem, StageBlamed, StageDeclined
from diffuse_core.services.progress import STUCK_PER_ROW_S, Progress
from diffuse_core.services.roll_call import RollCall
from diffuse_core.services.session_terms import Asked, opening, pieces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.links import Link
    from diffuse_core.services.session_desk import FromStage, SessionDesk

CREDITS = 64
OPEN_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 2.0

ToStage = OpenSession | Reroute | Resume | ForwardTokens | Credit | WatchSession | CloseSession


class ClientRun:
    """A Session over one Route after the other."""

    def __init__(
        self,
        desk: SessionDesk,
        route: Sequence[Hop],
        asked: Asked,
        log: AnswerLog,
        patience: float,
    ) -> None:
        self._desk = desk
        self._asked = asked
        self._log = log
        self._patience = patience
        self.route = tuple(route)
        self.session = secrets.token_bytes(16)
        self.epoch = 0
        self.stages: dict[int, Link] = {}
        """The link to each Stage, by its place in the Route."""
        self.gone: set[NodeId] = set()
        """Nodes of the Route that hold nothing of the Session, or did not say that they do."""
        self._answers: asyncio.Queue[tuple[Link | None, FromStage | Problem]] = asyncio.Queue()
        self._kept: set[int] = set()
        self._waiting: set[int] = set()
        self._held: dict[int, int] = {}
        self._drafts: dict[bytes, int] = {}
        self._granted = 0
        self._progress = Progress()
        watch = WatchSession(self.session)
        self._roll = RollCall(watch, desk.tasks, self.ended, self._look)

    @property
    def links(self) -> Collection[Link]:
        """Those to its Stages."""
        return self.stages.values()

    def placed(self) -> Iterator[tuple[Hop, Link]]:
        """The Stages there is a link to, in the order of the Route."""
        return ((self.route[index], self.stages[index]) for index in sorted(self.stages))

    # --- what comes in ----------------------------------------------------------------

    def deliver(self, link: Link, answer: FromStage) -> None:
        """Queue an answer; a Stage that floods us loses the surplus, and with it the Session."""
        self._roll.heard(link)
        if isinstance(answer, SessionAlive):
            self._roll.told(link, answer)
        elif self._answers.qsize() < 2 * CREDITS + 256:
            self._answers.put_nowait((link, answer))

    def ended(self, link: Link) -> None:
        """Queue that a link ended, or that nothing comes over it."""
        if link not in self.links:
            return
        if self._asked.is_own(link.remote):
            # It is this very process that was held up.
            self._roll.watch(link)
            return
        self._roll.leave(link)
        if link.closed:
            # A Sentinel that ends circuits time and again is no better than a silent one.
            self._desk.links.doubt(link)
            problem = self._blame(link, "the link to it ended", "ended")
        elif link.relayed_through is None:
            problem = self._blame(link, "it stopped answering", "silent")
        else:
            # Perhaps only the Sentinel between us fell silent: this link is of no more use.
            self._desk.links.doubt(link)
            problem = self._blame(link, "it stopped answering through its sentinel", "ended")
            self._desk.tasks.spawn(link.close(), "close")
        self._answers.put_nowait((link, problem))

    def _look(self, now: float) -> None:
        """Find out whether a Stage answers and yet does nothing."""
        if len(self.stages) < len(self.route):
            return
        counts = [self._roll.counts(self.stages[index]) for index in range(len(self.route))]
        if self._progress.is_stuck(counts, self._log.rows, now):
            self._progress.end()
            nodes = [None if self._asked.is_own(hop.node) else hop.node for hop in self.route]
            link = self.stages[self._progress.culprit(counts, self._log.rows, nodes)]
            problem = self._blame(link, "it answers, but makes no progress", "silent")
            self._answers.put_nowait((link, problem))

    def _blame(
        self, link: Link, why: str, how: How, reason: RefusalReason = "lost"
    ) -> StageBlamed:
        if how == "silent":
            link.fell_silent()
        return StageBlamed(
            self.route[self._index(link)], why, how, reason, relayed_through=link.relayed_through
        )

    def _index(self, link: Link) -> int:
        """The place of the Stage at the other end; of two, that of one still waited for."""
        places = [index for index, other in self.stages.items() if other is link]
        return next((index for index in places if index in self._waiting), places[0])

    async def _hear(self) -> None:
        """Take one answer. Raises StageBlamed or StageDeclined when it tells of a loss."""
        problem = self._heed(*await self._answers.get())
        if problem is not None:
            raise problem

    def troubles(self) -> list[Problem]:
        """What else is known to have gone wrong; tokens that came are taken meanwhile."""
        found: list[Problem] = []
        while not self._answers.empty():
            problem = self._heed(*self._answers.get_nowait())
            if problem is not None:
                found.append(problem)
        return found

    def _heed(self, link: Link | None, answer: FromStage | Problem) -> Problem | None:
        if isinstance(answer, StageBlamed | StageDeclined):
            of_now = link is None or link in self.links
            return answer if of_now and any(h.node == answer.node for h in self.route) else None
        if link is None or link not in self.links:
            return None
        match answer:
            case TokensDrawn():
                return self._take_tokens(link, answer)
            case SessionOpened() | Rerouted():
                self._joined(self._index(link), answer)
                return None
            case SessionRefused():
                if self._asked.is_own(link.remote):
                    raise Refused(f"the layers that run here: {answer.detail}", answer.reason)
                text = f"host {short_text(link.remote)} declined: {answer.detail}"
                return StageDeclined(link.remote, text, answer.reason)
            case SessionFailed():
                return self._failure(link, answer)
            case _:
                return None

    def _take_tokens(self, link: Link, message: TokensDrawn) -> StageBlamed | None:
        last = len(self.route) - 1
        if self.stages.get(last) is not link:
            return self._blame(link, "it spoke out of turn", "said", "invalid")
        again = last in self._waiting
        if again and last not in self._kept:
            # Of what ran there before this epoch.
            return None
        wrong = self._log.take_in(message, again=again)
        return None if wrong is None else self._blame(link, wrong, "said", "invalid")

    def _joined(self, index: int, answer: SessionOpened | Rerouted) -> None:
        if answer.epoch != self.epoch or index not in self._waiting:
            return
        node = self.route[index].node
        if isinstance(answer, Rerouted) and index in self._kept:
            self._held[index] = answer.held
        elif isinstance(answer, SessionOpened) and index not in self._kept:
            self._held[index] = 0
            self._drafts[node] = answer.drafts
            self.gone.discard(NodeId(node))
        else:
            return
        self._waiting.discard(index)

    def _failure(self, link: Link, answer: SessionFailed) -> StageBlamed | None:
        if answer.epoch < self.epoch and (answer.kept or link.remote in self.gone):
            # Of the Route before: that is why there is this one.
            return None
        if not answer.kept:
            self.gone.add(link.remote)
            # Asked again it would say the same, and be taken for lost once more.
            self._roll.leave(link)
        why = answer.detail
        named = next((hop for hop in self.route if hop.node == answer.node), None)
        if self._asked.is_own(link.remote):
            return self._seen_here(named, answer)
        # Only a node of the Route can be to blame; who names another is. We ourselves are there.
        if named is None or named.node == link.remote or self._asked.is_own(named.node):
            return self._blame(link, why, "said", answer.reason)
        return StageBlamed(named, why, "ended", answer.reason, accuser=link.remote)

    def _seen_here(self, named: Hop | None, answer: SessionFailed) -> StageBlamed | None:
        """What a Stage of our own says of another, we saw ourselves."""
        if named is None or self._asked.is_own(named.node):
            raise StagesLost(f"the layers that run here failed: {answer.detail}; ask again")
        link = self.stages.get(self.route.index(named))
        if answer.reason == "lost" and (link is None or link.closed):
            # That is told by whoever looks after that link, once.
            return None
        return StageBlamed(named, answer.detail, "ended", answer.reason)

    # --- what goes out ----------------------------------------------------------------

    def _post(self, link: Link, message: ToStage) -> asyncio.Task[None] | None:
        """Send without waiting; in order on each link."""

        async def send() -> None:
            with contextlib.suppress(ChannelClosed):
                await link.send(message)

        return self._desk.tasks.spawn(send(), "send")

    async def open(self) -> None:
        """Open the Session on every Stage at once, and feed it all there is.

        Raises:
            StageBlamed: a Stage could not be reached or did not answer.
            StageDeclined: a Stage refused it.
        """
        self._desk.add(self)
        self._roll.start()
        await self._enlist_all()
        self._resume()

    async def reroute(self, route: Sequence[Hop], kept: Collection[NodeId]) -> None:
        """Go on over another Route, on which the nodes in `kept` keep their parts.

        Raises:
            StageBlamed: a Stage could not be reached or did not answer.
            StageDeclined: a Stage refused it.
        """
        self.epoch += 1
        # One node may have two places: the Client's own, in private mode.
        had = {(hop.node, hop.part): link for hop, link in self.placed()}
        for (node, _), link in had.items():
            if node not in kept:
                self._roll.leave(link)
                self._post(link, CloseSession(self.session))
        self.route = tuple(route)
        self._kept = {index for index, hop in enumerate(route) if hop.node in kept}
        stayed = {index: had.get((route[index].node, route[index].part)) for index in self._kept}
        self.stages = {
            index: link for index, link in stayed.items() if link is not None and not link.closed
        }
        await self._enlist_all()
        self._resume()

    async def _enlist_all(self) -> None:
        places = range(len(self.route))
        self._waiting, self._held = set(places), {}
        made = await asyncio.gather(*map(self._enlist, places), return_exceptions=True)
        failures = [one for one in made if isinstance(one, BaseException)]
        for failure in failures[1:]:
            if isinstance(failure, StageBlamed):
                self._answers.put_nowait((None, failure))
        if failures:
            raise failures[0]
        limit = OPEN_TIMEOUT_S
        if self._kept:
            # A pass under way is brought to its end first.
            limit += STUCK_PER_ROW_S * PREFILL_ROWS
        try:
            async with asyncio.timeout(limit):
                while self._waiting:
                    await self._hear()
        except TimeoutError:
            late = self.stages[min(self._waiting)]
            raise self._blame(late, "it did not open the session in time", "silent") from None

    async def _enlist(self, index: int) -> None:
        """Have the Stage at a place of the Route follow it."""
        hop, kept = self.route[index], index in self._kept
        if not kept:
            self.gone.add(NodeId(hop.node))
        link = self.stages.get(index)
        if link is None:
            try:
                own = self._asked.own_link(hop)
                link = own or await self._desk.reach(hop, self._patience)
            except Unreachable as error:
                silent = isinstance(error.__cause__, TimeoutError)
                how: How = "unanswered" if silent else "undialled"
                raise StageBlamed(hop, f"it cannot be reached: {error}", how) from error
            self.stages[index] = link
        drawn = len(self._log.drawn)
        if kept:
            last = len(self.route) - 1
            if index != last and last in self._kept:
                # That one tells us again what we lack: nobody forgets anything.
                drawn = self._log.decoding.max_tokens
            self._post(link, Reroute(self.session, self.epoch, self.route, index, drawn))
        else:
            if index == len(self.route) - 1:
                self._granted = drawn + CREDITS
            self._post(link, opening(self._asked, self._log, self, index, CREDITS))
        self._roll.watch(link)

    def _resume(self) -> None:
        """Tell every Stage how many rows the next one holds, and feed the first what it lacks.

        Raises:
            StageBlamed: a Stage says that it holds rows that there are not.
        """
        for index, held in self._held.items():
            if held > self._log.rows:
                why = "it says that it holds more rows than there are"
                raise self._blame(self.stages[index], why, "said", "invalid")
        drafts = 0
        if self._asked.speculate:
            drafts = min(self._drafts.get(hop.node, 0) for hop in self.route)
        count, self._progress.fed = len(self.route), self._log.rows
        for index in range(count if self.epoch else 1):
            held = self._held[(index + 1) % count]
            self._post(self.stages[index], Resume(self.session, self.epoch, held, drafts))
        feed = self._feed(self.stages[0], self.epoch, pieces(self._log, self, self._held[0]))
        self._desk.tasks.spawn(feed, "feed")

    async def _feed(self, first: Link, epoch: int, rows: Sequence[ForwardTokens]) -> None:
        for piece in rows:
            if self.epoch != epoch:
                return
            try:
                await first.send(piece)
            except ChannelClosed:
                return

    async def token(self) -> TokensDrawn:
        """The next tokens.

        Raises:
            StageBlamed: a Stage failed, went away, broke the order, or does nothing.
            StageDeclined: a Stage changed its mind.
        """
        if not self._log.unread:
            self._progress.begin(asyncio.get_running_loop().time())
            try:
                while not self._log.unread:
                    await self._hear()
            finally:
                self._progress.end()
        drawn = self._log.take_out()
        if not self._log.finished and self._granted - self._log.read <= CREDITS // 2:
            more = max(1, CREDITS // 2)
            self._granted += more
            self._post(self.stages[len(self.route) - 1], Credit(self.session, more))
        return drawn

    async def close(self) -> None:
        """Free the Session on every Stage; bounded, and never raises."""
        self._roll.stop()
        self._desk.remove(self)
        sent = [self._post(link, CloseSession(self.session)) for link in self.links]
        closing = [task for task in sent if task is not None]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
