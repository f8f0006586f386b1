"""Settled Markdown as paragraphs and tables, ready to be wrapped to any width.

Parsed once. What the parser would hide is shown: HTML as the text it is, a link with where it
leads. Line breaks stay where the model made them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_tui.presenter.flow import Flow, Paragraph, Rule, Table
from diffuse_tui.presenter.rich_text import Look, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    from diffuse_tui.presenter.flow import Cell

MAX_CHARS = 17_000
MAX_MARKS = 2_000
"""Characters that may open something; the parser's time can grow with their square."""
MAX_CELLS = 2_000
MAX_URL = 300

MAX_TAIL = 4_000
"""Characters of text not settled yet that are shaped each time; of more, the last are shown."""

_CURSOR = Run("▍")
_DEEP = re.compile(r"^[ >*+\-0-9.)]{60}", re.MULTILINE)
"""More levels than are told apart; beyond a hundred the parser would leave text out."""
_BULLETS = "•◦▪"
_QUOTE = "▎ "
_CODE = "│ "
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_LOOKS = {"strong": Look.STRONG, "em": Look.EMPHASIS, "s": Look.STRIKE, "link": Look.LINK}


class Shaper:
    """Shapes one settled text after another; lists and empty lines go on from one to the next."""

    def __init__(self) -> None:
        self._gap = False
        self._number = 0

    def shape(self, block: str, *, settled: bool = True) -> tuple[Flow, ...]:
        """Paragraphs and tables of `block`, with an empty one where it has empty lines.

        With `settled` False, what comes next is shaped as if this had not been.
        """
        walk = _Walk(block.split("\n"), self._gap, self._number)
        if too_much(block):
            walk.plain()
        else:
            for token in _parser().parse(block):
                walk.take(token)
        if settled:
            after = walk.lines[walk.end : -1]
            self._gap = any(not line.strip() for line in after) or (self._gap and not walk.flow)
            self._number = walk.number
        return tuple(walk.flow)

    def between(self) -> None:
        """Something that is no text came: what follows owes no empty line."""
        self._gap = False


def tail_flow(shaper: Shaper, tail: str) -> tuple[Flow, ...]:
    """Text that still grows, a mark at its end; shaped while that is cheap."""
    tail = tail.rstrip("\n")
    if len(tail) > MAX_TAIL:
        return tuple(Paragraph((Run(line),)) for line in f"…{tail[-MAX_TAIL:]}▍".split("\n"))
    flow = shaper.shape(tail, settled=False)
    if flow and isinstance(flow[-1], Paragraph):
        return (*flow[:-1], flow[-1]._replace(runs=(*flow[-1].runs, _CURSOR)))
    return (*flow, Paragraph((_CURSOR,)))


def too_much(block: str) -> bool:
    """Whether reading `block` as Markdown would take too long or lose some of it."""
    marks = sum(map(block.count, "[!*_<&"))
    cells = block.count("|")
    return (
        len(block) > MAX_CHARS
        or marks > MAX_MARKS
        or cells > MAX_CELLS
        or _DEEP.search(block) is not None
    )


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 200})
    return parser.enable(["table", "strikethrough"]).disable(["reference", "lheading"])


class _Bar:
    """What rows are behind at one level: a mark for the first of them, blanks for the others."""

    def __init__(self, first: str, rest: str) -> None:
        self.first = first
        self.rest = rest


class _Walk:
    """One pass over the parser's tokens."""

    def __init__(self, lines: list[str], gap: bool, number: int) -> None:
        self.lines = lines
        self.flow: list[Flow] = []
        self.end = 0  # The line after the last leaf.
        self.number = number  # Of the last item of a list at the outermost level.
        self._owed = gap
        self._bars: list[_Bar] = []
        self._within: tuple[_Bar, ...] = ()  # Those of the last leaf.
        self._lists: list[int | None] = []
        self._heading = Look.PLAIN
        self._rows: list[list[Cell]] | None = None
        self._aligns: list[str] = []

    def take(self, token: Token) -> None:
        """One token; a block's begin and end change what its inner ones are behind."""
        match token.type:
            case "inline":
                self._inline(token)
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._leaf(token)
                self.flow.append(Rule(self._first()))
            case "heading_open":
                self._heading = Look.HEADING | Look.STRONG
                if token.tag in ("h1", "h2"):
                    self._heading |= Look.UNDERLINE
            case "heading_close":
                self._heading = Look.PLAIN
            case "blockquote_open":
                self._bars.append(_Bar(_QUOTE, _QUOTE))
            case "blockquote_close":
                self._bars.pop()
            case _:
                self._list_or_table(token)

    def _list_or_table(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(self._before(int(token.attrs.get("start", 1))))
            case "bullet_list_close" | "ordered_list_close":
                number = self._lists.pop()
                if not self._lists:
                    self.number = number or 0
            case "list_item_open":
                self._item()
            case "list_item_close":
                self._item_ends(token)
            case _:
                self._table(token)

    def _table(self, token: Token) -> None:
        match token.type:
            case "table_open":
                self._leaf(token)
                self._rows, self._aligns = [], []
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "th_open":
                self._aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2])
            case "table_close":
                self._table_ends()
            case _:
                pass

    def plain(self) -> None:
        """All lines as they are."""
        if self._owed:
            self.flow.append(Paragraph(()))
        while self.lines and not self.lines[-1].strip():
            self.lines.pop()
        self.flow += [Paragraph((Run(line),)) for line in self.lines]
        self.lines.append("")
        self.end = len(self.lines)

    def _leaf(self, token: Token) -> None:
        """Something is drawn for these lines; an empty row before it where the source has one."""
        start, end = token.map or (self.end, self.end)
        between = self.lines[self.end : start] if self.flow else ()
        if self._owed or any(not line.strip(" >") for line in between):
            # Of what both are within: a quote goes on through the empty row.
            pairs = zip(self._bars, self._within, strict=False)
            behind = "".join(bar.rest for bar, before in pairs if bar is before).rstrip()
            self.flow.append(Paragraph((), behind, behind))
        self._owed = False
        self._within = tuple(self._bars)
        self.end = max(start, end)
        if not self._lists:
            self.number = 0

    def _first(self) -> str:
        """What the next row is behind; marks are used up."""
        first = "".join(bar.first for bar in self._bars)
        for bar in self._bars:
            bar.first = bar.rest
        return first

    def _rest(self) -> str:
        return "".join(bar.rest for bar in self._bars)

    def _before(self, start: int) -> int:
        """The number before the first of a list; one cut in two goes on counting."""
        goes_on = not self._lists and not self.flow and start <= self.number
        return self.number if goes_on else start - 1

    def _item(self) -> None:
        number = self._lists[-1]
        if number is None:
            mark = f"{_BULLETS[min(len(self._lists), len(_BULLETS)) - 1]} "
        else:
            self._lists[-1] = number + 1
            mark = f"{number + 1}. "
        self._bars.append(_Bar(mark, " " * len(mark)))

    def _item_ends(self, token: Token) -> None:
        if self._bars[-1].first != self._bars[-1].rest:
            self._leaf(token)
            self.flow.append(Paragraph((), self._first(), self._rest()))
        self._bars.pop()

    def _inline(self, token: Token) -> None:
        runs = _runs(token.children or (), self._heading)
        if self._rows is not None:
            row = self._rows[-1]
            row.append(runs)
            if len(self._rows) > 1 and len(row) == len(self._aligns) and token.map:
                # What the row has beyond the head's columns the parser leaves out.
                row[-1] = (*runs, *_beyond(self.lines[token.map[0]], len(row)))
            return
        self._leaf(token)
        task = _TASKS.get(runs[0].text[:4]) if runs and self._lists else None
        if task:
            runs = (Run(task + runs[0].text[4:], runs[0].look), *runs[1:])
        self.flow.append(Paragraph(runs, self._first(), self._rest()))

    def _table_ends(self) -> None:
        rows, self._rows = self._rows or [], None
        if rows:
            head, *body = (tuple(row) for row in rows)
            first = self._first()
            self.flow.append(Table(head, tuple(body), tuple(self._aligns), first, self._rest()))

    def _code(self, token: Token) -> None:
        self._leaf(token)
        code = [Run(line, Look.CODE) for line in clean(token.content).rstrip("\n").split("\n")]
        if token.info.strip():
            code.insert(0, Run(clean_line(token.info.strip(), MAX_URL), Look.DIM))
        for line in code:
            behind = (self._first() + _CODE, self._rest() + _CODE)
            self.flow.append(Paragraph((line,), *behind))


def _runs(tokens: Sequence[Token], base: Look) -> tuple[Run, ...]:
    """Text of a paragraph; a link is followed by where it leads, if its text is not that."""
    runs: list[Run] = []
    look = base
    links: list[tuple[str, int]] = []
    for token in tokens:
        name, _, side = token.type.rpartition("_")
        match token.type:
            case "text" | "text_special" | "code_inline":
                code = Look.CODE if name == "code" else Look.PLAIN
                runs.append(Run(clean(token.content), look | code))
            case "softbreak" | "hardbreak":
                runs.append(Run("\n", look))
            case "image":
                runs.append(Run(f"image: {clean(token.content)}", look | Look.LINK))
                runs.append(_where(str(token.attrs.get("src", "")), base))
            case "link_open":
                links.append((str(token.attrs.get("href", "")), len(runs)))
            case "link_close":
                href, begun = links.pop()
                if href.removeprefix("mailto:") != "".join(r.text for r in runs[begun:]):
                    runs.append(_where(href, base))
            case _:
                pass
        if name in _LOOKS:
            look = look | _LOOKS[name] if side == "open" else look & ~_LOOKS[name]
    return tuple(run for run in runs if run.text)


def _beyond(line: str, columns: int) -> tuple[Run, ...]:
    """The cells of a table's row after so many, as they stand in its `line`."""
    cells = re.split(r"(?<!\\)\|", line.strip("> \t"))
    cells = cells[not cells[0] : len(cells) - (not cells[-1])]
    rest = " | ".join(cell.strip() for cell in cells[columns:]).replace("\\|", "|")
    return (Run(f" | {clean(rest)}"),) if rest.strip("| ") else ()


def _where(url: str, look: Look) -> Run:
    return Run(f" ({clean_line(url, MAX_URL)})", look | Look.DIM)
