"""Runs what is typed as a `/` command, and finds what would complete it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.context import MAX_SYSTEM
from diffuse_tui.presenter import slash
from diffuse_tui.presenter.blocks import code_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_tui.presenter.parameters import Params
    from diffuse_tui.presenter.spans import Tone
    from diffuse_tui.presenter.talk import Talk
    from diffuse_tui.widgets.completions import Completions
    from diffuse_tui.widgets.exchange import Exchange
    from diffuse_tui.widgets.files import Files
    from diffuse_tui.widgets.prompt import Prompt


class Chat(Protocol):
    """What commands act on. Strings given back tell why not; "" when done."""

    @property
    def talk(self) -> Talk:
        """The conversation."""

    def want(self, what: str, name: str = "") -> str:
        """Have the app open something, or choose the model `name`."""

    def new_conversation(self) -> str:
        """Begin another one."""

    def set_settings(self, system: str, params: Params) -> None:
        """Change the system prompt and how answers are made."""

    def regenerate(self) -> str:
        """Answer the last question anew."""

    def copy_text(self, text: str, what: str) -> None:
        """Hand `text` to the terminal's clipboard."""

    def export(self, kind: str, path: str) -> str:
        """Write the conversation to a file."""

    def rename(self, title: str) -> str:
        """Name the conversation."""

    def say(self, text: str | None = None, tone: Tone = "dim") -> None:
        """Show a note; without one, the state of the chat."""

    def stop_generation(self) -> bool:
        """Stop the answer that runs; False when none does."""


class Commands:
    """The commands by name, over one chat."""

    def __init__(
        self,
        chat: Chat,
        exchange: Exchange,
        prompt: Prompt,
        completions: Completions,
        files: Files,
    ) -> None:
        self._chat = chat
        self._exchange = exchange
        self._prompt = prompt
        self._completions = completions
        self._files = files
        self._by_name: dict[str, Callable[[str], str]] = {
            "new": lambda _: chat.new_conversation(),
            "system": self._system,
            "model": lambda name: chat.want("model", name) if name else chat.want("models"),
            "params": self._params,
            "set": self._set,
            "regenerate": lambda _: chat.regenerate(),
            "edit": self._edit,
            "other": self._other,
            "copy": self._copy,
            "attach": self._attach,
            "export": self._export,
            "rename": lambda title: chat.rename(title) if title else "its name? /rename TITLE",
            "history": lambda _: chat.want("history"),
            "waterfall": lambda _: chat.want("waterfall"),
            "stop": lambda _: "" if chat.stop_generation() else "no answer runs",
            "help": lambda _: chat.want("help"),
            "quit": lambda _: chat.want("quit"),
        }

    def complete(self, typed: str, models: tuple[str, ...]) -> None:
        """Offer what would complete what is typed."""

        def offer(paths: tuple[str, ...] = ()) -> None:
            found = slash.matches(typed, slash.Words(models, paths))
            self._completions.offer(found, typed)

        path = slash.path_typed(typed)
        if path is None:
            offer()
        else:
            self._files.find(typed, path, offer)

    def handle(self, text: str) -> str | None:
        """Run the command that was sent; what is a question all the same is given back."""
        meant = slash.read(text)
        if isinstance(meant, str):
            return meant
        if isinstance(meant, slash.Unknown):
            self._chat.say(meant.sentence, "bad")
            return None
        typed = self._prompt.text
        self._prompt.taken()
        if why := self.run(meant.name, meant.rest):
            self._chat.say(why, "bad")
            if not self._prompt.text:
                self._prompt.put(typed)
        return None

    def run(self, name: str, rest: str) -> str:
        """Do it; "" or why not."""
        return self._by_name[name](rest)

    def _set(self, rest: str) -> str:
        name, _, value = rest.partition(" ")
        if not name:
            return "set what? /set NAME VALUE; Tab lists the names"
        return self._with([(name, value.strip())])

    def _params(self, rest: str) -> str:
        words = rest.split()
        if not words:
            return self._chat.want("parameters")
        if len(words) % 2:
            return "give each name its value: /params temperature 0.7 top-p 0.95"
        return self._with(list(zip(words[::2], words[1::2], strict=True)))

    def _with(self, pairs: list[tuple[str, str]]) -> str:
        from diffuse_tui.presenter.settings_text import changed_text, parse_setting

        params: Params | str = self._chat.talk.params
        for name, value in pairs:
            if not isinstance(params, str):
                params = parse_setting(params, name, value)
        if isinstance(params, str):
            return params
        self._chat.set_settings(self._chat.talk.system, params)
        self._chat.say(f"next answers: {changed_text(params) or 'as by default'}")
        return ""

    def _system(self, text: str) -> str:
        if len(text) > MAX_SYSTEM:
            return f"too long: at most {MAX_SYSTEM:,} characters for a system prompt"
        self._chat.set_settings(text, self._chat.talk.params)
        self._chat.say("system prompt set" if text else "no system prompt any more")
        return ""

    def _copy(self, what: str) -> str:
        text = self._exchange.text
        if not what:
            if not text:
                return "no answer to copy yet"
            self._chat.copy_text(text, "Answer")
            return ""
        if what != "code":
            return "copy what? /copy or /copy code"
        blocks = code_blocks(text)
        if not blocks:
            return "no code block in the last answer"
        self._chat.copy_text(blocks[-1], "Code block")
        return ""

    def _attach(self, path: str) -> str:
        if not path:
            return "attach which file? /attach PATH"
        self._files.attach(path)
        return ""

    def _edit(self, _: str) -> str:
        why = self._exchange.edit_last()
        if not why:
            self._chat.say()
        return why

    def _other(self, _: str) -> str:
        why = self._exchange.other_version()
        if not why:
            number, count = self._exchange.talk.version
            self._chat.say(f"version {number} of {count} · u: the one before, and round")
        return why

    def _export(self, rest: str) -> str:
        kind, _, path = rest.partition(" ")
        if kind not in ("md", "json"):
            return "export as what? /export md or /export json, and a path if you like"
        return self._chat.export(kind, path.strip())
