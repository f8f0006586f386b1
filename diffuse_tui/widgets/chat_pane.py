"""The chat: a conversation with the model that is shown, one generation at a time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static, TextArea

from diffuse_core.domain.context import MAX_CHARS
from diffuse_core.domain.plain_text import clean_line
from diffuse_tui.presenter.answerer import Answerer
from diffuse_tui.presenter.chat_notes import ChatState, state_note
from diffuse_tui.presenter.chips import CHIP_CHARS
from diffuse_tui.presenter.spans import Span
from diffuse_tui.presenter.talk import Talk, as_dialogue, settings_line, talk_of, was_cut
from diffuse_tui.widgets import chat_messages
from diffuse_tui.widgets.completions import Completions
from diffuse_tui.widgets.conversation_view import ConversationView
from diffuse_tui.widgets.copying import copy
from diffuse_tui.widgets.exchange import BUSY, Exchange
from diffuse_tui.widgets.paint import content
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

    from diffuse_core.domain.view import GenerateRequest, ModelView
    from diffuse_tui.archive.store import Archive
    from diffuse_tui.presenter.dialogue import Dialogue
    from diffuse_tui.presenter.parameters import Params
    from diffuse_tui.presenter.spans import Tone
    from diffuse_tui.presenter.waterfall import Times
    from diffuse_tui.widgets.chips import ChipArea
    from diffuse_tui.widgets.commands import Commands

KEEP_S = 1.0
"""How often a growing answer is written down."""


class ChatPane(Vertical):
    """Keeps the conversation; asks the app to generate, and is told what comes of it."""

    BORDER_TITLE = "Chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+n", "new_conversation", "New chat", show=False),
    ]

    Ask: TypeAlias = chat_messages.Ask
    Stop: TypeAlias = chat_messages.Stop
    Wants: TypeAlias = chat_messages.Wants
    Export: TypeAlias = chat_messages.Export
    Arrived: TypeAlias = chat_messages.Arrived
    Ended: TypeAlias = chat_messages.Ended

    def __init__(self) -> None:
        super().__init__(id="chat")
        self._answerer = Answerer()
        self._typing = True
        self._hinting = True
        self._chars = 0
        self._clock: Timer | None = None
        self._completions = Completions()
        self._view = ConversationView()
        self._prompt = Prompt(self._completions, self._submitted)
        self._exchange = Exchange(self._view, self._prompt, self._start, self._quiet)
        self._models: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """Conversation, what completes a command, a line for notes, the prompt."""
        yield self._view
        yield self._completions
        yield Static("", id="note", markup=False)
        yield self._prompt

    def on_mount(self) -> None:
        """Say what to do."""
        self._prompt.placeholder = "Type a question, Enter sends"
        self.say()

    def on_unmount(self) -> None:
        """Keep what there is of an answer."""
        self._exchange.leave()

    # --- what others read and set -----------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a generation runs."""
        return self._exchange.answer is not None

    @property
    def talk(self) -> Talk:
        """The conversation."""
        return self._exchange.talk

    @property
    def times(self) -> Times | None:
        """Where the time of the last answer that is shown went, as far as that is known."""
        return self._exchange.times

    @property
    def dialogue_id(self) -> int | None:
        """The archive's number of the conversation, None while it is not kept."""
        return self._exchange.keeper.id

    def dialogue(self) -> Dialogue | None:
        """The whole conversation, for export; None when nothing was asked yet."""
        return as_dialogue(self.talk, self.dialogue_id or 0, self._exchange.keeper.title)

    def show_model(
        self,
        model: ModelView | None,
        refusal: str | None,
        names: tuple[str, ...] = (),
        *,
        picked: bool = False,
    ) -> None:
        """The model to ask from now on, and why it cannot answer, if it cannot.

        Args:
            model: The model, None when there is none.
            refusal: Why no question can be asked now.
            names: All models of the network, for completing `/model`.
            picked: Whether the user chose it just now.
        """
        self._models = tuple(clean_line(name) for name in names)
        if not self._answerer.set(model, refusal) and not picked:
            return
        self._notice_model(picked=picked)
        if not self.busy and self._hinting:
            self.say()

    def _notice_model(self, *, picked: bool) -> None:
        """Tell in the conversation when another model will answer than the one before."""
        said = self._answerer.switched(self.talk.last, picked=picked)
        if said is not None:
            self._view.tell_switch(said)

    # --- the archive ------------------------------------------------------------------------

    def use_archive(self, archive: Archive) -> None:
        """Keep the conversation from now on; show the one that the app's end had cut."""
        self._exchange.keeper.use(archive)
        latest = archive.latest() if archive.cut and not self.talk.turns else None
        if latest is not None and was_cut(latest) and self.open_dialogue(latest):
            self.say("the app ended in the middle of this answer · R asks anew", "warning")

    def open_dialogue(self, dialogue: Dialogue) -> bool:
        """Go on with a kept conversation; False while an answer runs."""
        if self.busy:
            self.say(BUSY, "warning")
            return False
        self._begin(talk_of(dialogue))
        self._exchange.keeper.go_on(dialogue)
        self.want("kept model", dialogue.model)
        self._notice_model(picked=True)
        self.say()
        return True

    def forgotten(self, number: int) -> None:
        """A conversation was deleted: when it is the open one, another begins."""
        if number == self.dialogue_id and not self.busy:
            self._begin(Talk())
            self.say()

    def _begin(self, talk: Talk) -> None:
        self._exchange.begin(talk)
        self._answerer.forget()
        self._show_settings()

    # --- what is typed ----------------------------------------------------------------------

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
            self._view.notice_typing(typing=typing)
            if self._hinting:
                self.say()

    def on_text_area_changed(self, message: TextArea.Changed) -> None:
        """Help with commands, and tell how long the question is."""
        message.stop()
        typed = self._prompt.text
        if typed.startswith("/"):
            self._commands.complete(typed, self._models)
        else:
            self._completions.offer((), typed)
        chars, self._chars = self._chars, len(self._prompt.full_text)
        if max(chars, self._chars) > CHIP_CHARS and chars != self._chars:
            self.say()

    def on_completions_chosen(self, message: Completions.Chosen) -> None:
        """A match was clicked."""
        message.stop()
        self._prompt.put(message.text)
        self._prompt.focus()

    def on_chip_area_refused(self, message: ChipArea.Refused) -> None:
        """Something did not go into the prompt."""
        message.stop()
        self.say(message.why, "bad")

    def _submitted(self, text: str) -> None:
        """Run a command; send, queue or refuse a question. A refused text stays where it is."""
        question: str | None = text
        if text.startswith("/"):
            question = self._commands.handle(text)
        if question is None:
            return
        if why := self._why_not(question):
            self.say(*why)
        elif self._answerer.model is not None:
            self._prompt.taken()
            self._exchange.send(question, self._answerer.model)
            self.say()

    def _why_not(self, question: str) -> tuple[str, Tone] | None:
        """Why a question is not taken now."""
        if len(question) > MAX_CHARS:
            return f"too long: at most {MAX_CHARS:,} characters fit in a question", "bad"
        if self.busy:
            waits = "one question is queued already; wait for the answer or press Esc"
            return (waits, "warning") if self._exchange.queued is not None else None
        why = self._answerer.why_not()
        return (why, "bad") if why else None

    # --- the generation ---------------------------------------------------------------------

    def _start(self, number: int, request: GenerateRequest) -> None:
        self._answerer.asked(request.model)
        self._clock = self.set_interval(KEEP_S, self._exchange.keep)
        self.post_message(self.Ask(self, number, request))
        self.say()

    def _quiet(self) -> None:
        if self._clock is not None:
            self._clock.stop()

    def on_chat_pane_arrived(self, message: chat_messages.Arrived) -> None:
        """Something came of a generation."""
        self._exchange.arrived(message.number, message.event, message.time)

    def on_chat_pane_ended(self, message: chat_messages.Ended) -> None:
        """A generation is over: send what waited."""
        stopping = self._exchange.stopping
        queued = self._exchange.ended(message.number)
        note = self._exchange.ending_note()
        if queued is not None:
            model = self._answerer.model
            if note is None and not stopping:
                why = self._answerer.why_not()
                if why is None and model is not None:
                    self._exchange.ask(queued, model)
                    return
                note = (why or "", "bad")
            self._exchange.give_back(queued)
        if not self.busy:
            self.say(*(note or (None,)))

    # --- what keys and commands do: "" when done, else why not ------------------------------

    @cached_property
    def _commands(self) -> Commands:
        # With the first command: it would be a part of the time to the first paint.
        from diffuse_tui.widgets.commands import Commands
        from diffuse_tui.widgets.files import Files

        files = Files(self, self._prompt, self.say)
        return Commands(self, self._exchange, self._prompt, self._completions, files)

    def do(self, command: str, rest: str = "") -> None:
        """Run a command, as if it were typed."""
        if why := self._commands.run(command, rest):
            self.say(why, "warning")

    def want(self, what: str, name: str = "") -> str:
        """Have something opened, or the model `name` chosen."""
        self.post_message(self.Wants(what, name))
        return ""

    def new_conversation(self) -> str:
        """Begin another conversation; this one stays in the archive."""
        if self.busy:
            return BUSY
        kept = self.dialogue_id is not None
        self._begin(Talk())
        self.say("a new conversation · F8: earlier ones" if kept else None)
        return ""

    def action_new_conversation(self) -> None:
        """Begin another conversation."""
        self.do("new")

    def stop_generation(self) -> bool:
        """Cancel what runs; False when nothing does."""
        answer = self._exchange.answer
        if answer is None:
            return False
        if not answer.stopping:
            answer.stopping = True
            self.post_message(self.Stop())
            self.say()
        return True

    def leave_edit(self) -> bool:
        """Leave the last question as it was; False when it is not being edited."""
        left = self._exchange.leave_edit()
        if left:
            self.say("left as it was · ↑ recalls the changed question")
        return left

    def regenerate(self) -> str:
        """Answer the last question anew; the answer so far is kept beside."""
        last = self.talk.last
        if why_not := self._exchange.why_not_now():
            return why_not
        if last is None:
            return "nothing to answer anew yet"
        if why := self._why_not(last.question):
            return why[0]
        if self._answerer.model is not None:
            self._exchange.ask(last.question, self._answerer.model, anew=last.number)
        return ""

    def set_settings(self, system: str, params: Params) -> None:
        """Change the system prompt and how the next answers are made."""
        self._exchange.talk = self.talk._replace(system=system, params=params)
        self._exchange.keeper.settings(self.talk)
        self._show_settings()

    def _show_settings(self) -> None:
        self.border_subtitle = Content(settings_line(self.talk))

    def copy_text(self, text: str, what: str) -> None:
        """Hand `text` to the terminal's clipboard."""
        copy(self, text, what)

    def export(self, kind: str, path: str) -> str:
        """Have the conversation written to a file."""
        if not self.talk.turns:
            return "nothing to export yet"
        self.post_message(self.Export(kind, path))
        return ""

    def rename(self, title: str) -> str:
        """Name the conversation."""
        self._exchange.keeper.name(title)
        self.say(f"this conversation is called: {title}")
        return ""

    # --- the line for notes -----------------------------------------------------------------

    def say(self, text: str | None = None, tone: Tone = "dim") -> None:
        """Show a note; without one, the state of the chat."""
        # What was not sent may be sent now; what is only told stays until something else is said.
        self._hinting = text is None or tone == "bad"
        if text is None:
            text, tone = self._state()
        note = self.query_one("#note", Static)
        note.update(content([(Span(clean_line(text), tone),)]))
        note.set_class(tone == "dim", "hint")

    def _state(self) -> tuple[str, Tone]:
        return state_note(
            ChatState(
                busy=self.busy,
                stopping=self._exchange.stopping,
                queued=self._exchange.queued,
                refusal=self._answerer.refusal,
                editing=self._exchange.editing is not None,
                typing=self._typing,
                chars=self._chars,
            )
        )
