"""Runs what is typed as a `/` command, and finds what would complete it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from diffuse_tui.presenter import slash
from diffuse_tui.presenter.blocks import code_blocks
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.presenter.talk import MAX_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_tui.presenter.slash import Said
    from diffuse_tui.presenter.talk import Talk
    from diffuse_tui.widgets.exchange import Exchange


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

    def attach(self, path: str) -> str:
        """Put a file into the prompt."""

    def export(self, kind: str, path: str) -> str:
        """Write the conversation to a file."""

    def rename(self, title: str) -> str:
        """Name the conversation."""

    def say(self, text: str | None = None) -> None:
        """Show a note; without one, the state of the chat."""

    def stop_generation(self) -> bool:
        """Stop the answer that runs; False when none does."""


class Commands:
    """The commands by name, over one chat. `models` are the names that `/model` knows."""

    def __init__(self, chat: Chat, exchange: Exchange) -> None:
        self._chat = chat
        self._exchange = exchange
        self.models: tuple[str, ...] = ()
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
            "attach": lambda path: (
                chat.attach(path) if path else "attach which file? /attach PATH"
            ),
            "export": self._export,
            "rename": lambda title: chat.rename(title) if title else "its name? /rename TITLE",
            "history": lambda _: chat.want("history"),
            "waterfall": lambda _: chat.want("waterfall"),
            "stop": lambda _: "" if chat.stop_generation() else "no answer runs",
            "help": lambda _: chat.want("help"),
            "quit": lambda _: chat.want("quit"),
        }

    def matches(self, typed: str, paths: tuple[str, ...] = ()) -> tuple[slash.Match, ...]:
        """What would complete what is typed; `paths` are those that begin as a typed one."""
        return slash.matches(typed, slash.Words(self.models, paths))

    def run(self, said: Said) -> str:
        """Do it; "" or why not."""
        return self._by_name[said.name](said.rest)

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
        from diffuse_tui.presenter.settings_text import parse_setting

        params: Params | str = self._chat.talk.params
        for name, value in pairs:
            if not isinstance(params, str):
                params = parse_setting(params, name, value)
        if isinstance(params, str):
            return params
        self._chat.set_settings(self._chat.talk.system, params)
        self._chat.say(f"next answers: {params_text(params) or 'as by default'}")
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

    def _edit(self, _: str) -> str:
        why = self._exchange.edit_last()
        if not why:
            self._chat.say()
        return why

    def _other(self, _: str) -> str:
        why = self._exchange.other_version()
        if not why:
            count = len(self._exchange.talk.others) + 1
            self._chat.say(f"another of {count} versions · u: the next one")
        return why

    def _export(self, rest: str) -> str:
        kind, _, path = rest.partition(" ")
        if kind not in ("md", "json"):
            return "export as what? /export md or /export json, and a path if you like"
        return self._chat.export(kind, path.strip())


def params_text(params: Params) -> str:
    """What is set otherwise than by default, "" when nothing is."""
    if params == Params():
        return ""
    # Only now: it looks into the bounds of messages, which takes a moment.
    from diffuse_tui.presenter.settings_text import changed_text

    return changed_text(params)
