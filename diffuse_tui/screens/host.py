"""Hosting from the app: choose a model, see what would fit and why, start; watch, drain, stop."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.fit import failure_lines, fit_lines
from diffuse_tui.presenter.host_progress import Pace, host_lines, step_of
from diffuse_tui.presenter.host_questions import (
    DRAIN_S,
    draining,
    replacing,
    stopping,
)
from diffuse_tui.presenter.hosting import (
    Choice,
    Complete,
    Completed,
    End,
    Keep,
    Look,
    PlanFor,
    Planned,
    Start,
    Status,
    hosts,
    leaves,
)
from diffuse_tui.presenter.spans import Line, Span
from diffuse_tui.screens.live import LiveScreen
from diffuse_tui.screens.question import Answer, Question
from diffuse_tui.widgets.cycle import Cycle
from diffuse_tui.widgets.host_form import HostForm
from diffuse_tui.widgets.model_input import ModelInput, Proposals
from diffuse_tui.widgets.paint import content

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.geometry import Size

    from diffuse_tui.presenter.facts import Facts
    from diffuse_tui.presenter.hosting import News, Order
    from diffuse_tui.presenter.spans import Tone

_HINT = (
    "Type a model or take one from the list: a name on the network or on the hub (ORG/NAME), a "
    "file or directory (Tab completes), demo, or auto. Enter shows what would fit here, and why."
)
_GOES_ON, _ENDS = "goes on", "ends"


class HostNews(Message, bubble=False):
    """The desk tells something."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self.news = news


class HostScreen(LiveScreen[None]):
    """A form while nothing is hosted, and how far the host is while something is."""

    CRUMB = "Host"
    AUTO_FOCUS = "ModelInput"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "Start hosting"),
        Binding("d", "drain", "Drain"),
        Binding("x", "stop", "Stop"),
        Binding("slash", "edit", "Choose another model", show=False),
        Binding("j", "scroll('down')", "Scroll down", show=False),
        Binding("k", "scroll('up')", "Scroll up", show=False),
        Binding("ctrl+d", "scroll('page_down')", "Page down", show=False),
        Binding("ctrl+u", "scroll('page_up')", "Page up", show=False),
        Binding("g", "scroll('home')", "To the top", show=False),
        Binding("G", "scroll('end')", "To the end", show=False),
    ]

    class Asked(Message):
        """Something is to be done: the app hands it to the desk."""

        def __init__(self, order: Order) -> None:
            super().__init__()
            self.order = order

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._status = Status()
        self._planned: Planned | None = None
        self._planning: Choice | None = None
        self._pace = Pace()
        self._hosting: bool | None = None
        self._attached = False

    def compose_body(self) -> ComposeResult:
        """The form, then what is told."""
        yield HostForm()
        yield Cycle("after quitting the host", (_GOES_ON, _ENDS), id="host-keep")
        with VerticalScroll(id="host-text"):
            yield Static(id="host-lines")

    def on_mount(self) -> None:
        """Ask how hosting stands."""
        self.post_message(self.Asked(Look()))

    # --- what is told -----------------------------------------------------------------------

    def show_facts(self, facts: Facts) -> None:
        """Form or progress, as the node's telemetry says."""
        attached = facts.link.state in ("attached", "stalled")
        if attached and not self._attached:
            # Another node than before, perhaps.
            self.post_message(self.Asked(Look()))
        self._attached = attached
        hosting = attached and hosts(facts.telemetry)
        if hosting and facts.telemetry is not None and facts.view is not None:
            step = step_of(facts.telemetry)
            self._pace = self._pace.then(facts.view.taken_at, step.phase, step.done)
        if hosting != self._hosting:
            self._hosting = hosting
            self.set_class(hosting, "-hosting")
            self.refresh_bindings()
            self._settle_focus()
        if not hosting:
            self.query_one(HostForm).show_view(facts.view)
        self._draw()

    def on_host_news(self, message: HostNews) -> None:
        """The desk answers."""
        match message.news:
            case Status() as status:
                self._status = status
                self._show_status(status)
            case Planned(choice) as planned if choice == self._planning:
                self._planned, self._planning = planned, None
                at_text = self.focused is self.query_one("#host-text")
                if planned.fit is not None and at_text and self._may("start"):
                    self.set_focus(self.query_one("#host-start"))
            case Completed(text, paths):
                self.query_one(HostForm).show_paths(text, paths)
            case _:
                return
        self._draw()

    def _show_status(self, status: Status) -> None:
        self.query_one("#host-keep", Cycle).value = _GOES_ON if status.keep else _ENDS
        self.set_class(bool(status.refusal), "-refused")
        self.set_class(status.ours, "-ours")
        self.refresh_bindings()
        self._settle_focus()

    def _draw(self) -> None:
        lines = list(self._lines(max(20, self.query_one("#host-text").size.width - 2)))
        self.query_one("#host-lines", Static).update(content(lines))

    def _lines(self, width: int) -> tuple[Line, ...]:
        status = self._status
        lines: list[Line] = []
        if status.doing:
            lines += _told(f"◌ {clean_line(status.doing, 120)} …", "accent", width)
        if status.failure:
            lines += failure_lines(status.failure, width)
        if self._hosting:
            lines += host_lines(self.facts.telemetry, status, self._pace, width)
        if status.refusal:
            lines += [(), *_told(status.refusal, "warning", width)]
        if self._hosting or status.refusal:
            return tuple(lines)
        if self._planning is not None:
            name = clean_line(self._planning.model, 80)
            doing = f"◌ finding out what of {name} would fit here …"
            return (*lines, *_told(doing, "accent", width))
        if self._planned is None:
            return (*lines, *_told(_HINT, "dim", width))
        if self._planned.fit is None:
            return (*lines, *failure_lines(self._planned.failure, width))
        return (*lines, *fit_lines(self._planned.fit, width))

    def _settle_focus(self) -> None:
        focused = self.focused
        if (self._hosting or self._status.refusal) and (
            focused is None or focused.id != "host-keep"
        ):
            self.set_focus(self.query_one("#host-text"))

    def fit(self, size: Size) -> bool:
        """Text is wrapped to the width."""
        if self._hosting is not None:
            self.call_after_refresh(self._draw)
        return super().fit(size)

    def on_descendant_focus(self) -> None:
        """Proposals take room only while a model is chosen."""
        self.set_class(isinstance(self.focused, ModelInput | Proposals), "-choosing")

    # --- the form ---------------------------------------------------------------------------

    def on_host_form_path_typed(self, message: HostForm.PathTyped) -> None:
        """Have it completed."""
        self.post_message(self.Asked(Complete(message.text)))

    def on_host_form_chosen(self, message: HostForm.Chosen) -> None:
        """Have it planned for; a mere change of settings only where a plan is shown."""
        if message.done or self._planned is not None or self._planning is not None:
            self._plan(message.choice, focus=message.done)

    def on_cycle_changed(self, message: Cycle.Changed) -> None:
        """What comes after quitting is the desk's."""
        self.post_message(self.Asked(Keep(message.cycle.value == _GOES_ON)))

    def _plan(self, choice: Choice, *, focus: bool) -> None:
        if self._status.refusal:
            return
        self._planned, self._planning = None, choice
        self.post_message(self.Asked(PlanFor(choice)))
        if focus:
            self.set_focus(self.query_one("#host-text"))
        self._draw()

    def on_button_pressed(self) -> None:
        """The only button starts."""
        self.action_start()

    # --- actions ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Show only the keys that do something now."""
        if action in ("start", "drain", "stop"):
            return self._may(action)
        return super().check_action(action, parameters)

    def _may(self, action: str) -> bool:
        if action == "start":
            return not (self._hosting or self._status.refusal or self._status.doing)
        if action == "drain" and leaves(self.facts.telemetry):
            return False
        return bool(self._hosting) and self._status.ends

    def action_back(self) -> None:
        """Out of a field first, then out of the screen."""
        if isinstance(self.focused, Input):
            self.set_focus(self.query_one("#host-text"))
        else:
            super().action_back()

    def action_edit(self) -> None:
        """To the model again."""
        if not (self._hosting or self._status.refusal):
            self.set_focus(self.query_one(ModelInput))

    def action_scroll(self, way: str) -> None:
        """Move through a long text."""
        getattr(self.query_one("#host-text"), f"scroll_{way}")(animate=False)

    def action_start(self) -> None:
        """Host what is chosen; where a node of somebody else makes room, ask first."""
        choice = self.query_one(HostForm).choice
        if not self._may("start"):
            return
        if not choice.model:
            self.notify("Choose a model first.", markup=False)
            self.set_focus(self.query_one(ModelInput))
            return
        if self._status.other is None:
            self._begin(choice)
            return
        question = Question(
            "End the node that runs here?",
            replacing(self._status),
            (Answer("y", "end it, and host in its place"),),
        )
        self.app.push_screen(question, lambda key: self._begin(choice) if key else None)

    def _begin(self, choice: Choice) -> None:
        self.post_message(self.Asked(Start(choice)))

    def action_drain(self) -> None:
        """Let Sessions finish, take no new ones, then end."""
        if self.facts.telemetry is not None and self._may("drain"):
            self._ask_end("drain", draining(self.facts.telemetry), "d", DRAIN_S)

    def action_stop(self) -> None:
        """End soon; at once where it is leaving already."""
        telemetry = self.facts.telemetry
        if telemetry is not None and self._may("stop"):
            patience = 0.0 if leaves(telemetry) else None
            self._ask_end("stop", stopping(telemetry), "x", patience)

    def _ask_end(self, word: str, text: str, key: str, patience: float | None) -> None:
        question = Question(f"{word.capitalize()} hosting?", text, (Answer(key, f"{word} it"),))

        def answered(given: str | None) -> None:
            if given is not None:
                self.post_message(self.Asked(End(patience)))

        self.app.push_screen(question, answered)


def _told(text: str, tone: Tone, width: int) -> tuple[Line, ...]:
    """A sentence over as many lines as it needs, one cell from the edge as all the rest."""
    pieces = textwrap.wrap(text, max(16, width - 1))
    return tuple((Span(f" {piece}", tone),) for piece in pieces)
