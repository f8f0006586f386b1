"""Runs what the Host screen asks for as the app's own workers, and brings the news back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from textual.app import App
    from textual.worker import Worker

    from diffuse_tui.presenter.hosting import Desk, News, Order

_GOES_ON = (
    "It can go on without the app, which attaches to it when it is started again; `diffuse stop` "
    "ends it, too."
)
_LEAVING = f"A host that was started here runs. {_GOES_ON}"
_KEPT = f"A host that was started here earlier, and kept, still runs. {_GOES_ON}"
_BUSY = (
    "an answer is being written, through the node whose place the host would take: wait for it, "
    "or stop it in the chat with Esc"
)
_NO_DESK = "this app was started without a way to host"


class HostErrands:
    """Between the app's screens and the desk.

    Args:
        app: Owns the work: it ends with it.
        make: Makes the desk that does it, when something is asked of it first; without it
            everything is refused.
        busy: Whether an answer is being written through the node.
    """

    def __init__(
        self, app: App[Any], make: Callable[[], Desk] | None, busy: Callable[[], bool]
    ) -> None:
        self._app = app
        self._make = make
        self._desk: Desk | None = None
        self._busy = busy

    @property
    def doing(self) -> str:
        """What is under way that the node goes and comes for; empty most of the time."""
        return self._desk.status.doing if self._desk is not None else ""

    @property
    def ending(self) -> bool:
        """Whether the user has the node ended, or had, from here."""
        return self._desk is not None and self._desk.status.ending

    def run(self, order: Order) -> None:
        """Carry an order out; of plans, and of completions, only the newest matters."""
        from diffuse_tui.presenter.hosting import Complete, PlanFor, Start, Status

        desk = self._at_desk()
        if desk is None:
            self._tell(Status(refusal=_NO_DESK))
            return
        if isinstance(order, Start) and self._busy():
            self._tell(desk.status._replace(failure=_BUSY))
            return
        newest = isinstance(order, PlanFor | Complete)
        group = f"hosting {type(order).__name__}"
        # A callable and no coroutine: that would be left over where a newer one comes at once.
        work = partial(desk.do, order, self._tell)
        _: Worker[None] = self._app.run_worker(work, group=group, exclusive=newest)

    def _at_desk(self) -> Desk | None:
        """The desk, made when it is needed first; None where the app cannot host."""
        if self._desk is None and self._make is not None:
            self._desk = self._make()
        return self._desk

    def _tell(self, news: News) -> None:
        from diffuse_tui.presenter.hosting import Status
        from diffuse_tui.screens.host import HostNews, HostScreen

        screens = [s for s in self._app.screen_stack if isinstance(s, HostScreen)]
        for screen in screens:
            screen.post_message(HostNews(news))
        if not screens and isinstance(news, Status) and news.failure:
            self._app.notify(clean_line(news.failure), severity="error", markup=False)

    def abandon(self) -> None:
        """The app ends this instant."""
        if self._desk is not None:
            self._desk.abandon()

    # --- leaving ----------------------------------------------------------------------------

    def leaving(self) -> Coroutine[Any, Any, bool] | None:
        """What is asked before the app is left: nothing unless a host of the app's runs."""
        desk = self._at_desk()
        return self._ask(desk) if desk is not None and desk.status.ours else None

    async def _ask(self, desk: Desk) -> bool:
        """Whether to leave; the answer also settles what becomes of the host."""
        from diffuse_tui.presenter.hosting import Keep
        from diffuse_tui.screens.question import Answer, Question

        keep, stop = Answer("k", "keep hosting"), Answer("s", "stop the host, then quit")
        answers = (keep, stop) if desk.status.keep else (stop, keep)
        told = _LEAVING if desk.status.mine else _KEPT
        question = Question("Keep hosting after quitting?", told, answers)
        key = await self._app.push_screen_wait(question)
        if key is not None:
            await desk.do(Keep(keep=key == keep.key), self._tell)
        return key is not None
