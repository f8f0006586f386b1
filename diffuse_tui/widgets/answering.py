"""One answer as it comes: what each event means for the turn that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.view import (
    Audited,
    Failed,
    Finished,
    Healed,
    RouteChosen,
    TextDelta,
    Waiting,
)
from diffuse_tui.presenter.conversation import (
    audited_line,
    brief_line,
    finished_lines,
    healed_line,
    opened_line,
    stopped_lines,
    waiting_line,
)
from diffuse_tui.presenter.spans import plain
from diffuse_tui.presenter.waterfall import Times

if TYPE_CHECKING:
    from diffuse_core.domain.view import GenerateEvent
    from diffuse_tui.presenter.dialogue import TurnState
    from diffuse_tui.widgets.turn import TurnView


class Outcome(NamedTuple):
    """How an answer ended, and what is said below it."""

    state: TurnState
    note: str


class Answer:
    """Shows one generation in `view`, and keeps its times.

    Args:
        view: The turn.
        number: Which generation this is.
        left_out: How many of the oldest turns did not travel with the question.
        seed: The seed that counts, None when the answer does not depend on one.
        anew: Whether it takes the place of an earlier answer.
    """

    def __init__(
        self,
        view: TurnView,
        number: int,
        *,
        left_out: int = 0,
        seed: int | None = None,
        anew: bool = False,
    ) -> None:
        self.view = view
        self.number = number
        self.anew = anew
        self.stopping = False
        self.outcome: Outcome | None = None
        self.times = Times()
        self.prompt_tokens = 0
        self._left_out = left_out
        self._seed = seed

    @property
    def text(self) -> str:
        """The answer so far."""
        return self.view.answer

    def take(self, event: GenerateEvent, at: float = 0.0) -> Outcome | None:
        """Show what came, in seconds of any clock; how the answer ended, when it did."""
        if self.outcome is not None:
            return None
        match event:
            case RouteChosen(route=route, prompt_tokens=tokens):
                self.times.route, self.prompt_tokens = route, tokens
                self.view.note([opened_line(route, tokens)], passing=True)
            case TextDelta() as delta:
                self.view.add(delta.text)
                self.times.add(delta, at)
            case Waiting() as waiting:
                self.view.happened(waiting_line(waiting))
            case Healed() as healed:
                # The text goes on; Finished.events tell more of it at the end.
                self.times.route = healed.route
                self.times.healed.append(len(self.times.passes))
                self.view.happened(healed_line(healed))
            case Audited() as found:
                self.view.happened(audited_line(found))
            case Finished() as done:
                self._finish(done)
            case Failed(message=why):
                self._fail(why)
        return self.outcome

    def end(self) -> Outcome:
        """No more comes: how the answer ended."""
        if self.outcome is None and self.stopping:
            lines = stopped_lines(self.times)
            self.view.finish(lines, state="stopped")
            self.outcome = Outcome("stopped", self.view.said)
        elif self.outcome is None:
            self._fail("the answer ended without a word why; ask again")
        return self.outcome or Outcome("failed", "")

    def _finish(self, done: Finished) -> None:
        self.times.route = done.route
        lines = finished_lines(done, self._left_out, self.times.passes, self._seed)
        state: TurnState = "stopped" if done.finish_reason == "cancelled" else "done"
        self.view.finish(lines, brief_line(done), state)
        self.outcome = Outcome(state, "\n".join(plain(line) for line in lines))

    def _fail(self, why: str) -> None:
        self.view.fail(why)
        self.outcome = Outcome("failed", why)
