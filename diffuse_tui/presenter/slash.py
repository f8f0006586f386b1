"""Commands that are typed into the prompt: `/name argument`, and what would complete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain import slash
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.slash import NAME_CHARS, Command, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_MATCHES = 50

COMMANDS: tuple[Command, ...] = (
    Command("new", "", "begin a new conversation"),
    Command("system", "TEXT", "set the system prompt; alone: take it away"),
    Command("model", "NAME", "ask another model; alone: choose from a list"),
    Command("params", "NAME VALUE ...", "how answers are made; alone: all of them"),
    Command("set", "NAME VALUE", "one of these settings"),
    Command("regenerate", "", "answer the last question anew"),
    Command("edit", "", "change the last question and ask it anew"),
    Command("other", "", "show the version before regenerating or editing"),
    Command("copy", "code", "copy the last answer, or its last code block"),
    Command("attach", "PATH", "send a text file along with the question"),
    Command("export", "md|json [PATH]", "write the conversation to a file"),
    Command("rename", "TITLE", "name the conversation"),
    Command("history", "", "earlier conversations"),
    Command("waterfall", "", "where the tokens of the last answer spent their time"),
    Command("stop", "", "stop the answer that runs"),
    Command("help", "", "all keys"),
    Command("quit", "", "leave"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


class Unknown(NamedTuple):
    """No such command; the one that was meant, perhaps."""

    name: str
    nearest: str | None

    @property
    def sentence(self) -> str:
        """What to tell."""
        meant = f"; did you mean /{self.nearest}?" if self.nearest else ""
        hint = "" if self.nearest else "; / lists them, // sends a question that begins with /"
        return f"there is no command /{clean_line(self.name, NAME_CHARS)}{meant}{hint}"


class Match(NamedTuple):
    """One way to complete what is typed: `text` takes the place of the whole prompt."""

    text: str
    label: str
    what: str = ""


class Words(NamedTuple):
    """What else completes: names of models, and paths that begin as the typed one does."""

    models: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def read(text: str) -> Said | Unknown | str:
    """What a prompt says: a command, one that does not exist, or a question."""
    found = slash.read(text)
    if isinstance(found, str) or found.name in _BY_NAME:
        return found
    return Unknown(found.name, slash.nearest(found.name, _BY_NAME))


def is_typed(text: str) -> bool:
    """Whether `text` is a command in the making, for which a list of matches helps."""
    return text.startswith("/") and not text.startswith("//") and "\n" not in text


def is_name(text: str) -> bool:
    """Whether `text` is the whole name of a command and no more."""
    return text[1:] in _BY_NAME


def runs_alone(text: str) -> bool:
    """Whether `text` is the name of a command that nothing may follow."""
    return is_name(text) and not _BY_NAME[text[1:]].argument


def path_typed(text: str) -> str | None:
    """The beginning of a path that is being typed, if one is."""
    if not is_typed(text):
        return None
    name, space, rest = text[1:].partition(" ")
    if name == "export":
        kind, space, rest = rest.partition(" ")
        name = "attach" if kind in ("md", "json") else ""
    return rest if name == "attach" and space else None


NO_WORDS = Words()


def matches(text: str, words: Words = NO_WORDS) -> tuple[Match, ...]:
    """What would complete `text`, best first; nothing when it is no command."""
    if not is_typed(text) or len(text) > 1_000:
        return ()
    found = _of_names(text) if " " not in text else _of_arguments(text, words)
    return tuple(match for _, match in zip(range(MAX_MATCHES), found, strict=False))


def _of_names(text: str) -> Iterator[Match]:
    typed = text[1:].lower()
    for command in sorted(COMMANDS, key=lambda command: not command.name.startswith(typed)):
        if command.name.startswith(typed) or (len(typed) > 1 and typed in command.name):
            space = " " if command.argument else ""
            label = f"/{command.name} {command.argument}".rstrip()
            yield Match(f"/{command.name}{space}", label, command.what)


def _of_arguments(text: str, words: Words) -> Iterator[Match]:
    name, rest = slash.parts(text)
    match name:
        case "model":
            for model in words.models:
                if rest.lower() in model.lower():
                    yield Match(f"/model {model}", model)
        case "set" | "params":
            yield from _of_settings(text)
        case "copy":
            yield from _of_words("/copy ", rest, ("code",))
        case "attach" | "export":
            path = path_typed(text)
            if path is None and name == "export":
                yield from _of_words("/export ", rest, ("md", "json"))
            elif path is not None:
                before = text[: len(text) - len(path)]
                yield from (Match(before + each, each) for each in words.paths)
        case _:
            pass


def _of_words(before: str, typed: str, words: Iterable[str]) -> Iterator[Match]:
    for word in words:
        if word.startswith(typed):
            yield Match(before + word, word)


def _of_settings(text: str) -> Iterator[Match]:
    # Only now: it looks into the bounds of messages, which takes a moment.
    from diffuse_tui.presenter.settings_text import SETTINGS, range_text

    parts = text.split(" ")[1:]
    single = text.startswith("/set ")
    if (single and len(parts) > 2) or not parts:
        return
    naming = len(parts) % 2 == 1
    for setting in SETTINGS:
        span = range_text(setting.name)
        what = f"{setting.hint} ({span})" if span else setting.hint
        if naming and setting.name.startswith(parts[-1].lower().replace("_", "-")):
            before = text[: len(text) - len(parts[-1])]
            yield Match(f"{before}{setting.name} ", setting.name, what)
        elif not naming and setting.name == parts[-2] and not parts[-1]:
            yield Match(text, f"{setting.name} ...", what)
