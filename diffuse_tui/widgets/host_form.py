"""What to host and how: a model with proposals, and settings that can be left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Button, Input, Static
from textual.widgets.option_list import Option

from diffuse_tui.presenter.host_questions import Idea, idea_line, ideas, is_path
from diffuse_tui.presenter.hosting import DEVICES, DTYPES, Choice
from diffuse_tui.widgets.cycle import Cycle
from diffuse_tui.widgets.model_input import ModelInput, Proposals
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.typed_line import TypedLine

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import NetworkView


class _Proposal(Option):
    """An idea in the list; it knows what is typed for it."""

    def __init__(self, idea: Idea) -> None:
        super().__init__(content([idea_line(idea)]))
        self.value = idea.value


class HostForm(Vertical):
    """Tells when a choice is made, when a path is typed, and (the button) when to start."""

    class Chosen(Message):
        """A model is named and may be planned for; `done` when the user moves on from there."""

        def __init__(self, choice: Choice, *, done: bool) -> None:
            super().__init__()
            self.choice = choice
            self.done = done

    class PathTyped(Message):
        """The beginning of a path, to be completed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(id="host-form")
        self._view: NetworkView | None = None
        self._paths: tuple[str, ...] = ()
        self._ideas: tuple[Idea, ...] = ()

    def compose(self) -> ComposeResult:
        """Three rows, and the proposals below."""
        with Horizontal(classes="host-row"):
            yield Static("model", classes="host-label")
            yield ModelInput(id="host-model")
        with Horizontal(classes="host-row"):
            yield Static("memory", classes="host-label")
            yield TypedLine("auto", most=12, select=True, id="host-memory")
            yield Cycle("dtype", DTYPES, id="host-dtype")
            yield Cycle("device", DEVICES, id="host-device")
        with Horizontal(classes="host-row"):
            yield Static("layers", classes="host-label")
            yield _number("host-layers")
            yield Static("threads", classes="host-label")
            yield _number("host-threads")
            yield Button("Start hosting", compact=True, id="host-start")
        yield Proposals(id="host-ideas", markup=False, compact=True)

    @property
    def choice(self) -> Choice:
        """As the form stands."""
        return Choice(
            model=self._typed().strip(),
            memory=self.query_one("#host-memory", Input).value.strip(),
            dtype=self.query_one("#host-dtype", Cycle).value,
            device=self.query_one("#host-device", Cycle).value,
            max_layers=self.query_one("#host-layers", Input).value.strip(),
            threads=self.query_one("#host-threads", Input).value.strip(),
        )

    def show_view(self, view: NetworkView | None) -> None:
        """Propose the models of this network."""
        self._view = view
        self._propose()

    def show_paths(self, text: str, paths: tuple[str, ...]) -> None:
        """Propose these, unless another text was typed meanwhile."""
        if text == self._typed():
            self._paths = self.query_one(ModelInput).paths = paths
            self._propose()

    def _typed(self) -> str:
        return self.query_one(ModelInput).value

    def _propose(self) -> None:
        found = ideas(self._view, self._paths, self._typed())
        if found == self._ideas:
            return
        self._ideas = found
        proposals = self.query_one(Proposals)
        at = proposals.highlighted
        proposals.clear_options()
        proposals.add_options([_Proposal(idea) for idea in found])
        if at is not None and found:
            proposals.highlighted = min(at, len(found) - 1)

    def _tell(self, *, done: bool) -> None:
        choice = self.choice
        if choice.model:
            self.post_message(self.Chosen(choice, done=done))

    def on_input_changed(self, message: Input.Changed) -> None:
        """Propose what the text may become."""
        message.stop()
        if message.input.id == "host-model":
            self._paths = self.query_one(ModelInput).paths = ()
            if is_path(message.value):
                self.post_message(self.PathTyped(message.value))
            self._propose()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Enter in any field."""
        message.stop()
        self._tell(done=True)

    def on_option_list_option_selected(self, message: Proposals.OptionSelected) -> None:
        """Take a proposal; a directory is looked into."""
        message.stop()
        # Of the list as it was when the choice was made: the network may have changed it since.
        option = message.option
        value = option.value if isinstance(option, _Proposal) else ""
        field = self.query_one(ModelInput)
        field.value = value
        field.cursor_position = len(value)
        if value.endswith("/"):
            self.screen.set_focus(field)
        else:
            self._tell(done=True)

    def on_cycle_changed(self, message: Cycle.Changed) -> None:
        """Another setting makes another plan."""
        message.stop()
        self._tell(done=False)


def _number(name: str) -> TypedLine:
    return TypedLine("auto", most=4, restrict=r"[0-9]*", select=True, id=name)
