from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_tui.presenter.blocks import MAX_PENDING, BlockCutter, Piece, code_blocks
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.flow import flow_rows
from diffuse_tui.presenter.highlight import highlighted, language_of
from diffuse_tui.presenter.kept_turn import preview_rows, question_text
from diffuse_tui.presenter.markdown import MAX_TAIL, Shaper, tail_flow, too_much
from diffuse_tui.presenter.rich_text import Look, Row, Run, cells, wrap

SOON_S = 2.0
"""Seconds for 20,000 characters, on the slowest machine; what grows as their square takes more."""
"""Of CPU time: far more than it takes, far less than what grows with a square would."""


def cut(text: str, step: int = 10**6) -> list[Piece]:
    cutter = BlockCutter()
    found = []
    for start in range(0, len(text), step):
        found += cutter.push(text[start : start + step])
    return found + cutter.flush()


def rows(text: str, width: int = 40, step: int = 10**6) -> list[Row]:
    """As a turn shows it, code as its bare lines."""
    shaper = Shaper()
    found: list[Row] = []
    for piece in cut(text, step):
        if piece.kind == "text":
            found += [row for flow in shaper.shape(piece.text) for row in flow_rows(flow, width)]
        elif piece.kind == "line":
            found.append(Row((Run(piece.text),)))
        elif piece.kind == "end":
            shaper.between()
    return found


def drawn(text: str, width: int = 40, step: int = 10**6) -> list[str]:
    return [row.text.rstrip() for row in rows(text, width, step)]


ALL = """# Title
para **bold *both*** and `code` ~~no~~ &amp; <b>html</b>
[here](https://x.org) <https://y.org> ![alt](pic.png)

1. one
   more
2. two
   - nested text that must be wrapped somewhere
     - deep
1. three
   ```sh
   x
     y
   ```
   after
4. four

> quote
> - in it
>
> end

- [ ] open
- [x] done
-

| a | b |
|---|--:|
| long cell here | **2** |

---
[id]: http://x.org
"""
SHOWN = [
    "Title",
    "para bold both and code no & <b>html</b>",
    "here (https://x.org) https://y.org",
    "image: alt (pic.png)",
    "",
    "1. one",
    "   more",
    "2. two",
    "   ◦ nested text that must be wrapped",
    "     somewhere",
    "     ▪ deep",
    "3. three",
    "x",
    "  y",
    "after",
    "4. four",
    "",
    "▎ quote",
    "▎ • in it",
    "▎",
    "▎ end",
    "",
    "• ☐ open",
    "• ☑ done",
    "•",
    "",
    "a              │ b",
    "───────────────┼──",
    "long cell here │ 2",
    "",
    "─" * 40,
    "[id]: http://x.org",
]


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_markdown_is_drawn_the_same_however_it_comes(step: int) -> None:
    assert drawn(ALL, step=step) == SHOWN


def test_code_within_a_quote_is_drawn_in_it() -> None:
    assert drawn("> ```py x\n> a\n>   b\n> ```\n") == ["▎ │ py x", "▎ │ a", "▎ │   b"]


def test_looks_are_told_apart() -> None:
    looks = {
        run.text: run.look for row in rows("## H\n**a** *b* `c` ~~d~~ [e](f)") for run in row.runs
    }
    assert looks["H"] == Look.HEADING | Look.STRONG | Look.UNDERLINE
    assert (looks["a"], looks["b"], looks["c"]) == (Look.STRONG, Look.EMPHASIS, Look.CODE)
    assert (looks["d"], looks["e"], looks[" (f)"]) == (Look.STRIKE, Look.LINK, Look.DIM)


def test_items_of_a_list_settle_one_by_one() -> None:
    cutter = BlockCutter()
    first = cutter.push("Things:\n- one\n  more\n- two\n")
    assert first == [Piece("text", "Things:\n- one\n  more\n")]
    assert cutter.tail == "- two\n"
    assert cutter.push("3. x\n4. y\n") == [Piece("text", "- two\n"), Piece("text", "3. x\n")]


def test_a_paragraph_settles_when_the_next_begins() -> None:
    cutter = BlockCutter()
    assert cutter.push("one\ntwo\n\n") == []
    assert cutter.push("*") == [Piece("text", "one\ntwo\n\n")]
    assert cutter.push("*a**\n\n  indented") == []
    assert cutter.flush() == [Piece("text", "**a**\n\n  indented\n")]
    assert cutter.flush() == []


def test_a_year_at_the_begin_of_a_line_makes_no_list() -> None:
    assert drawn("It was in\n1984. It was cold.") == ["It was in", "1984. It was cold."]


def test_code_comes_line_by_line_and_may_stay_open() -> None:
    cutter = BlockCutter()
    assert cutter.push("a\n````js x\nb\n```\n") == [
        Piece("text", "a\n"),
        Piece("code", "js x"),
        Piece("line", "b"),
        Piece("line", "```"),
    ]
    assert cutter.push("c") == []
    assert cutter.tail == "c"
    assert cutter.flush() == [Piece("line", "c"), Piece("end")]
    # Three marks with others after them are code within a line.
    assert cut("```a``` b")[0].kind == "text"


def test_the_code_of_an_answer() -> None:
    assert code_blocks("x\n```py\na\nb\n```\ny\n~~~\n~~~\n```\nopen") == ("a\nb", "", "open")
    assert code_blocks("none") == ()
    # Small models end on a fence at times: that is no block.
    assert code_blocks("x\n```py\na\n```\ny\n```") == ("a",)
    assert cut("x\n```", 2) == [Piece("text", "x\n")]


def test_the_tail_is_shaped_with_a_mark_at_its_end() -> None:
    def tail(text: str) -> list[str]:
        flow = tail_flow(Shaper(), text)
        return [row.text for each in flow for row in flow_rows(each, 40)]

    assert tail("**a** b") == ["a b▍"]
    assert tail("") == ["▍"]
    assert tail("| a |\n|---|")[-1] == "▍"
    long = tail("x" * 3 * MAX_TAIL)
    assert sum(map(len, long)) == MAX_TAIL + 2


def test_wrapping_keeps_words_and_tells_how_rows_join() -> None:
    found = wrap((Run("one two "), Run("three four", Look.STRONG)), 12, "- ", "  ")
    assert [(row.text, row.glue) for row in found] == [
        ("- one two", "\n"),
        ("  three four", " "),
    ]
    assert found[1].runs[1].look == Look.STRONG
    assert [row.glue for row in wrap((Run("x" * 25),), 10)] == ["\n", "", ""]
    assert [row.text for row in wrap((Run("a\n\n" + " " * 30),), 10)] == ["a", "", ""]


@given(st.text(alphabet="ab 日é\u0301👩\u200d👧\n", max_size=60), st.integers(1, 20))
def test_no_character_that_is_no_space_is_lost_by_wrapping(text: str, width: int) -> None:
    found = wrap((Run(text),), width)
    assert "".join("".join(row.text for row in found).split()) == "".join(text.split())
    # With joiners in odd places the width of a whole is not that of its parts.
    if width > 1 and "\u200d" not in text:
        assert all(cells(row.text) <= width for row in found)


_BITS = st.sampled_from(
    ["**", "*", "_", "`", "```", "~~~", "\n", "\n\n", "- ", "  - ", "1. ", "> ", "# ", "|", "|-|",
     "[", "](", ")", "<", "&", "\\", "---", "word", "日本", " ", "    ", "~~", "![", "\x1b"]
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(_BITS, max_size=40).map("".join), st.integers(1, 30), st.integers(1, 50))
def test_whatever_is_written_is_drawn(text: str, step: int, width: int) -> None:
    found = "".join(drawn(text, width, step))
    assert found.count("word") <= text.count("word")
    assert cells(max((row.text for row in rows(text, width)), key=cells, default="")) < width + 60
    shaper = Shaper()
    for piece in cut(text, step):
        tail_flow(shaper, piece.text)


@pytest.mark.parametrize(
    "text",
    [
        "y" * 100_000,
        "word " * 20_000,
        "日" * 50_000,
        "[" * 100_000,
        "![" * 50_000,
        "**a " * 25_000,
        "*a_" * 30_000,
        "> " * 5_000 + "deep",
        "\n".join("  " * n + "- x" for n in range(300)),
        "- " * 1_000 + "x",
        "|" + "a|" * 100 + "\n|" + "-|" * 100 + "\n" + ("|" + "a|" * 100 + "\n") * 100,
        "```\n" + "x\n" * 20_000,
        "```python\n" + '"' * 50_000,
        "- z\n" * 5_000,
        "`" * 50_000,
        "&#" * 20_000,
        "\n" * 50_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_hostile_answers_cost_little(text: str) -> None:
    began = time.thread_time()
    found = rows(text, 80)
    assert time.thread_time() - began < SOON_S * max(1, len(text) / 20_000)
    assert found or not text.strip("`\n")
    assert len(found) <= len(text) + 1
    written, shown = (set("".join(each)) for each in (text, [row.text for row in found]))
    kept = {"w", "日", "d", "x", "a", "z"}
    assert kept & written <= shown


@pytest.mark.parametrize("text", ["[" * 3_000, "*a" * 3_000, "|" * 3_000, "x" * 20_000, "> " * 40])
def test_what_could_stall_or_lose_text_is_shown_as_it_is(text: str) -> None:
    assert too_much(text)
    assert "".join(drawn(text)).replace(" ", "") == text.replace(" ", "")
    assert not too_much(ALL * 5)


def test_a_line_without_end_is_settled_in_parts() -> None:
    cutter = BlockCutter()
    pieces = [piece for _ in range(40) for piece in cutter.push("x" * 1_000)]
    assert len(pieces) == 2
    assert len(cutter.tail) <= MAX_PENDING


def test_tables_fit_or_are_told_row_by_row() -> None:
    table = "| name | text |\n|:-:|---|\n| a | one two three four five six |\n"
    assert drawn(table, 24) == [
        "name │ text",
        "─────┼──────────────────",
        " a   │ one two three",
        "     │ four five six",
    ]
    assert drawn(table, 10)[0] == "name │"
    assert drawn("> | a |\n> |---|\n> | b |\n", 24) == ["▎ a", "▎ ─", "▎ b"]
    # Cells beyond the head's columns are part of the last one.
    wide = "a | b\n-|-\n1 | *2* | 3\\|4 | |\n1 | 2 |\n| 1 | 2 | |\n1\n"
    told = [row.replace(" ", "") for row in drawn(wide)]
    assert [*told[:1], *told[2:]] == ["a│b", "1│2|3|4|", "1│2", "1│2", "1│"]
    quoted = drawn("> | a |\n> |---|\n> | b | c |\n")
    assert [row.rstrip() for row in quoted] == ["▎ a", "▎ ─────", "▎ b | c"]


def test_code_is_highlighted_where_that_is_cheap() -> None:
    lines = ["def f(x):  # why", '    return "a" + 1', ""]
    found = list(highlighted(lines, "py"))
    assert ["".join(run.text for run in line) for line in found[:3]] == lines
    looks = {run.text: run.look for line in found for run in line}
    assert (looks["def"], looks["f"], looks["# why"]) == (Look.KEYWORD, Look.NAME, Look.COMMENT)
    assert looks["1"] == Look.NUMBER
    assert not list(highlighted(lines, "brainfuck"))
    assert not list(highlighted(["x" * 2_000], "python"))
    assert not list(highlighted(["x" * 100] * 1_000, "python"))
    assert [language_of(each) for each in ("", "Python3 x", "{.rust}", "c,ignore")] == [
        "",
        "python3",
        "rust",
        "c",
    ]


def test_long_questions_are_told_in_short() -> None:
    assert question_text("a\nb\x1b") == "a\nb␛"
    text = question_text("\n".join(["x" * 50] * 400))
    assert text.count("\n") == 12
    assert text.endswith("… 388 more lines, 20 kB in all")
    assert question_text("y" * 1_300).endswith("y\n… 0 more lines, 1 kB in all")


def test_a_turn_that_nobody_saw_yet_has_about_its_height() -> None:
    turn = KeptTurn(number=0, question="q", answer="one\n\ntwo", state="cut", note="3 tokens")
    told = [row.text for row in preview_rows(turn, 30)]
    assert told == [
        "q", "", "one", "", "two", "", "▲ cut: the app ended while", "this was written", "3 tokens"
    ]  # fmt: skip
