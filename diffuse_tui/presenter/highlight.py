"""Colours for code, where that is cheap: known languages, bounded sizes, a part at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_tui.presenter.rich_text import Look, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CODE = 60_000
MAX_LINE = 1_000
"""Characters; a lexer's expressions may take long on what is longer."""

_ALIASES = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "sh": "bash",
    "shell": "bash",
    "zsh": "bash",
    "console": "bash",
    "c++": "cpp",
    "rs": "rust",
    "golang": "go",
    "yml": "yaml",
}
LANGUAGES = frozenset(
    (
        *("python", "javascript", "typescript", "bash", "c", "cpp", "csharp", "rust", "go"),
        *("java", "kotlin", "swift", "ruby", "php", "lua", "r", "scala", "haskell"),
        *("json", "yaml", "toml", "ini", "xml", "html", "css", "sql", "diff"),
        *("makefile", "dockerfile"),
    )
)
_MEANT: tuple[tuple[str, Look], ...] = (
    ("Comment", Look.COMMENT),
    ("Keyword", Look.KEYWORD),
    ("Literal.String", Look.STRING),
    ("Literal.Number", Look.NUMBER),
    ("Name.Function", Look.NAME),
    ("Name.Class", Look.NAME),
    ("Name.Decorator", Look.NAME),
    ("Name.Tag", Look.KEYWORD),
    ("Name.Attribute", Look.NAME),
    ("Operator.Word", Look.KEYWORD),
    ("Generic.Inserted", Look.STRING),
    ("Generic.Deleted", Look.NUMBER),
)


def language_of(info: str) -> str:
    """The language that a fence names, "" for none: the first word, in small letters."""
    words = info.replace("{", " ").replace("}", " ").replace(",", " ").split()
    return words[0].lower().removeprefix(".")[:20] if words else ""


def prepare(language: str) -> None:
    """Import what `highlighted` needs for a language: a wait of its own, before the first line."""
    if _ALIASES.get(language, language) in LANGUAGES:
        from pygments.lexers import get_lexer_by_name

        get_lexer_by_name(_ALIASES.get(language, language))


def highlighted(lines: list[str], language: str) -> Iterator[tuple[Run, ...]]:
    """The lines with their looks, one by one; none where it would cost too much."""
    name = _ALIASES.get(language, language)
    long = sum(map(len, lines)) > MAX_CODE or any(len(line) > MAX_LINE for line in lines)
    if name not in LANGUAGES or long:
        return
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(name, stripnl=False, ensurenl=True)
    held: list[Run] = []
    for kind, text in lexer.get_tokens("\n".join(lines)):
        look = _look(kind)
        first, *others = text.split("\n")
        held.append(Run(first, look))
        for other in others:
            yield tuple(run for run in held if run.text)
            held = [Run(other, look)]
    yield tuple(run for run in held if run.text)


def _look(kind: object) -> Look:
    name = str(kind).removeprefix("Token.")
    for prefix, look in _MEANT:
        if name.startswith(prefix):
            return look
    return Look.PLAIN
