"""The chat: a conversation with the model that is shown, one generation at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.view import (
    Audited,
    Failed,
    Finished,
    GenerateRequest,
    Healed,
    RouteChosen,
    TextDelta,
    Waiting,
)
from diffuse_tui.presenter.conversation import (
    MAX_CHARS,
    Turn,
    audited_line,
    brief_line,
    context,
    finished_lines,
    healed_line,
    opened_line,
    waiting_line,
)
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.prompt import Prompt
from diffuse_tui.widgets.turn import TurnView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from diffuse_core.domain.view import GenerateEvent, ModelView, StageTiming
    from diffuse_tui.presenter.spans import Tone

MAX_ANSWER_TOKENS = 1024
MAX_TURNS_SHOWN = 60

_HELLO = (
    "Ask the model anything. Its layers are spread over the hosts of the coverage map; "
    "your question passes through them in order, and the answer streams back here."
)


class ChatPane(Vertical):
    """Keeps the conversation; asks the app to generate, and is told what comes of it."""

    BORDER_TITLE = "Chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new_conversation", "New chat", show=False),
    ]

    class Ask(Message):
        """Please run this generation and tell `pane` of it under `number`."""

        def __init__(self, pane: ChatPane, number: int, request: GenerateRequest) -> None:
            super().__init__()
            self.pane = pane
            self.number = number
            self.request = request

    class Stop(Message):
        """Please cancel the generation that runs."""

    class Arrived(Message, bubble=False):
        """Something came of generation `number`."""

        def __init__(self, number: int, event: GenerateEvent) -> None:
            super().__init__()
            self.number = number
            self.event = event

    class Ended(Message, bubble=False):
        """Generation `number` is over and its iterator is closed."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__(id="chat")
        self._model: ModelView | None = None
        self._refusal: str | None = "the network is not known yet"
        self._turns: list[Turn] = []
        self._left_out = 0
        self._passes: list[tuple[StageTiming, ...]] = []
        self._number = 0
        self._current: TurnView | None = None
        self._stopping = False
        self._settled = True
        self._queued: str | None = None
        self._typing = True

    def compose(self) -> ComposeResult:
        """Conversation, a line for notes, the prompt."""
        with VerticalScroll(id="conversation"):
            yield Static(Content(_HELLO), id="hello")
        yield Static("", id="note", markup=False)
        yield Prompt()

    def on_mount(self) -> None:
        """Follow the newest text until scrolled away."""
        self.query_one("#conversation", VerticalScroll).anchor()
        self.query_one(Prompt).placeholder = "Type a question, Enter sends"
        self._say()

    @property
    def busy(self) -> bool:
        """Whether a generation runs."""
        return self._current is not None

    def show_model(self, model: ModelView | None, refusal: str | None) -> None:
        """The model to ask from now on, and why it cannot answer, if it cannot."""
        if model is self._model and refusal == self._refusal:
            return
        self._model, self._refusal = model, refusal
        if not self.busy:
            self._say()

    def on_descendant_focus(self) -> None:
        """What Enter and letters do depends on where the focus is."""
        self._notice_focus()

    def on_descendant_blur(self) -> None:
        """The prompt may have been left."""
        self._notice_focus()

    def _notice_focus(self) -> None:
        typing = isinstance(self.screen.focused, Prompt)
        if typing != self._typing:
            self._typing = typing
            self._say()

    def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        """Send, queue or refuse; a refused text stays where it is."""
        message.stop()
        prompt = self.query_one(Prompt)
        if len(message.text) > MAX_CHARS:
            self._say(f"too long: at most {MAX_CHARS} characters fit in a question", "bad")
        elif self.busy and self._queued is not None:
            self._say(
                "one question is queued already; wait for the answer or press Esc", "warning"
            )
        elif self.busy:
            self._queued = message.text
            prompt.taken()
            self._say()
        elif self._model is None or self._refusal is not None:
            self._say(f"not sent: {self._refusal or 'there is no model'}", "bad")
        else:
            prompt.taken()
            self._ask(message.text)

    def _ask(self, question: str) -> None:
        if self._model is None:
            return
        self._number += 1
        self._stopping, self._settled = False, False
        sent = context(self._turns, question)
        self._left_out = sent.left_out
        self._passes.clear()
        self._current = TurnView(question)
        self._current.add_class("live")
        self.query_one("#hello").display = False
        conversation = self.query_one("#conversation", VerticalScroll)
        conversation.mount(self._current)
        conversation.anchor()
        for old in conversation.query(TurnView)[:-MAX_TURNS_SHOWN]:
            old.remove()
        request = GenerateRequest(
            model=f"{self._model.id}@{self._model.fingerprint}",
            messages=sent.messages,
            max_tokens=max(1, min(MAX_ANSWER_TOKENS, self._model.context // 2)),
            timings=True,
        )
        self.post_message(self.Ask(self, self._number, request))
        self._say()

    def on_chat_pane_arrived(self, message: Arrived) -> None:
        """Show what came; what comes late from an earlier generation is dropped."""
        turn = self._current
        if turn is None or message.number != self._number or self._settled:
            return
        match message.event:
            case RouteChosen(route=route, prompt_tokens=tokens):
                turn.note([opened_line(route, tokens)], passing=True)
            case TextDelta(text=text, stages=stages):
                turn.add(text)
                if stages and len(self._passes) < MAX_ANSWER_TOKENS:
                    self._passes.append(stages)
            case Waiting() as waiting:
                turn.happened(waiting_line(waiting))
            case Healed() as healed:
                # The text goes on; Finished.events tell more of it at the end.
                turn.happened(healed_line(healed))
            case Audited() as found:
                turn.happened(audited_line(found))
            case Finished() as done:
                self._settled = True
                lines = finished_lines(done, self._left_out, self._passes)
                turn.finish(lines, brief_line(done))
                self._turns.append(Turn(turn.question, turn.answer))
            case Failed(message=why):
                self._fail(turn, why)

    def on_chat_pane_ended(self, message: Ended) -> None:
        """The generation is over: settle it, and send what waited."""
        turn = self._current
        if turn is None or message.number != self._number:
            return
        if not self._settled and self._stopping:
            turn.finish([(Span("■ stopped", "warning"),)])
            self._turns.append(Turn(turn.question, turn.answer))
        elif not self._settled:
            self._fail(turn, "the answer ended without a word why; ask again")
        self._current = None
        queued, self._queued = self._queued, None
        if queued is None:
            self._say()
        elif self._stopping or self._refusal is not None:
            self._give_back(queued)
            self._say()
        else:
            self._ask(queued)

    def _fail(self, turn: TurnView, why: str) -> None:
        self._settled = True
        turn.fail(why)
        self._give_back(turn.question)

    def _give_back(self, text: str) -> None:
        prompt = self.query_one(Prompt)
        if not prompt.text:
            prompt.put(text)

    def stop_generation(self) -> bool:
        """Cancel what runs; False when nothing does."""
        if not self.busy:
            return False
        if not self._stopping:
            self._stopping = True
            self.post_message(self.Stop())
            self._say()
        return True

    def action_new_conversation(self) -> None:
        """Forget all turns."""
        if self.busy:
            self._say("an answer is running; press Esc first", "warning")
            return
        self._turns.clear()
        self.query(TurnView).remove()
        self.query_one("#hello").display = True
        self._say()

    def copy_answer(self) -> None:
        """Hand the last answer to the terminal's clipboard."""
        if not self._turns:
            self._say("no answer to copy yet", "warning")
            return
        self.app.copy_to_clipboard(self._turns[-1].answer)
        self._say("answer sent to the terminal's clipboard (OSC 52; some terminals ignore it)")

    def _say(self, text: str | None = None, tone: Tone = "dim") -> None:
        """Show a note; without one, the state of the chat."""
        if text is None:
            text, tone = self._state()
        note = self.query_one("#note", Static)
        note.update(content([(Span(clean_line(text), tone),)]))
        note.set_class(tone == "dim", "hint")

    def _state(self) -> tuple[str, Tone]:
        if self._stopping and self.busy:
            return "stopping…", "warning"
        if self._queued is not None:
            return f"queued: {clean_line(self._queued, 60)}", "accent"
        if self.busy:
            return "answering · Esc stops", "accent"
        if self._refusal is not None:
            return f"cannot answer yet: {self._refusal}", "warning"
        if not self._typing:
            return "c or F3 to type again · letters are commands · F1 lists them", "dim"
        return "Enter sends · Alt+Enter new line · ↑ recalls", "dim"
