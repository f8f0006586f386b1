"""What may be typed beside questions: `/name argument`."""

from __future__ import annotations

from typing import NamedTuple

from diffuse_core.domain import slash
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.slash import NAME_CHARS, Command, Said, nearest

COMMANDS: tuple[Command, ...] = (
    Command("help", "", "these commands"),
    Command("models", "", "models of the network"),
    Command("model", "NAME", "another model; alone: which one is asked"),
    Command("system", "TEXT", "the system prompt; alone: take it away"),
    Command("set", "NAME VALUE", "how answers are made; alone: all of it"),
    Command("retry", "", "ask the last question once more"),
    Command("undo", "", "take back the last question and its answer"),
    Command("edit", "", "take it back, and change it"),
    Command("reset", "", "forget the conversation"),
    Command("history", "", "the conversation so far"),
    Command("save", "FILE", "write it down; .md as Markdown, else JSON"),
    Command("load", "FILE", "go on with one that was saved as JSON"),
    Command("attach", "FILE", "send a text file with the next question"),
    Command("route", "", "the hosts of the last answer"),
    Command("stats", "", "tokens and times of the last answer"),
    Command("status", "", "how well the model is covered"),
    Command("quit", "", "leave"),
)
ALIASES = {
    "clear": "reset",
    "new": "reset",
    "exit": "quit",
    "params": "set",
    "regenerate": "retry",
}
_BY_NAME = {command.name: command for command in COMMANDS}
_LABEL_WIDTH = 17


class Unknown(NamedTuple):
    """No such command, or more than it takes; `sentence` is what to tell."""

    sentence: str


def read(text: str) -> Said | Unknown | str:
    """What was typed: a command, one that does not exist, or a question."""
    found = slash.read(text)
    if isinstance(found, str):
        return found
    typed, rest = found
    known = ALIASES.get(typed, typed)
    if known not in _BY_NAME:
        return Unknown(_unknown(typed))
    if rest and not _BY_NAME[known].argument:
        return Unknown(f"/{known} takes no argument")
    return Said(known, rest)


def help_lines() -> list[str]:
    """All commands, in lines that 60 columns hold."""
    return [
        f"{f'/{command.name} {command.argument}'.rstrip():<{_LABEL_WIDTH}} {command.what}"
        for command in COMMANDS
    ]


def _unknown(name: str) -> str:
    near = nearest(name, (*_BY_NAME, *ALIASES))
    told = f"there is no command /{clean_line(name, NAME_CHARS)}"
    if near is not None:
        return f"{told}; did you mean /{near}?"
    return f"{told}; /help lists them, // begins a question with a /"
