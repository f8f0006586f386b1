"""Conversations as Markdown and JSON, whatever they hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import UsageError
from diffuse_tui.presenter import export_markdown
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.export import file_text, slug
from diffuse_tui.presenter.export_json import from_json, to_json
from diffuse_tui.presenter.export_markdown import to_markdown
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.presenter.titles import TITLE_CHARS, first_words

OPEN_ENDS = (
    "```python\nprint(1)",
    "~~~~\nx\n```",
    "- a list\n  ```\n  in it",
    "> ```\n> quoted",
    "<!-- never closed",
    "<script>\nlet x",
    "<pre>\n\nx",
    "<?php\n\nx",
    "<![CDATA[\n\nx",
    "<!DOCTYPE\n\nx",
    "<div>\nhello",
    "text\n===",
    "    indented",
    "[a]: <",
    "1. one\n\n   two",
    "`` ` ```",
    "| a |\n|---|",
    "```\n<!--\n```\n<!--\n```",
    "`" * 300,
)
MARKS = st.text("`~<>!-#*_[]()|=+.\n\t 1ab/p?&;\\\"'", max_size=60)
TEXTS = st.one_of(
    st.text(st.characters(codec=None), max_size=80),
    MARKS,
    st.lists(st.sampled_from(OPEN_ENDS) | MARKS, max_size=4).map("\n".join),
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=40)


def dialogue(*turns: tuple[str, str], **more: object) -> Dialogue:
    return Dialogue(
        id=3,
        model="tiny@ab",
        created_at=0.0,
        changed_at=60.0,
        turns=tuple(
            KeptTurn(number=index, question=question, answer=answer, state="done", model="tiny@ab")
            for index, (question, answer) in enumerate(turns)
        ),
        **({"title": "Heaps"} | more),
    )


def headings(text: str) -> list[str]:
    """The headings that are in nothing else."""
    tokens = MarkdownIt("commonmark").parse(text)
    return [
        tokens[place + 1].content
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


def test_markdown_reads_well() -> None:
    kept = dialogue(("Why\n```\nx\n```", "```python\n\tprint('a`b')\n```"), system="Be brief.")
    text = to_markdown(kept)
    assert text == (
        "# Heaps\n\n- Model: ` tiny@ab `\n"
        "- Parameters: ` temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, "
        "presence_penalty=0.0, frequency_penalty=0.0, seed=null, max_tokens=1024, stop=[], "
        "speculate=true, audit=0.0 `\n"
        "- Begun: 1970-01-01 00:00 UTC\n- Last changed: 1970-01-01 00:01 UTC\n\n"
        "## System prompt\n\n> ```text\n> Be brief.\n> ```\n\n"
        "## Question 1\n\n> ````text\n> Why\n> ```\n> x\n> ```\n> ````\n\n"
        "## Answer 1\n\n```python\n\tprint('a`b')\n```\n"
    )


def test_how_an_answer_ended_is_told() -> None:
    turns = (
        KeptTurn(number=0, question="q", answer="half", state="cut"),
        KeptTurn(number=1, question="q", state="failed", note="stage *lost*\nask again"),
        KeptTurn(number=2, question="q", answer="a", state="done", model="big@cd"),
    )
    text = to_markdown(Dialogue(id=1, title="", turns=turns, created_at=1e300))
    assert text.startswith("# untitled\n")
    assert "half\n\n*cut off when the app ended*" in text
    assert "*(nothing)*\n\n*failed*\n\n*stage \\*lost\\* · ask again*" in text
    assert "*answered by big@cd*" in text
    assert "- Begun: unknown" in text


@pytest.mark.parametrize("end", OPEN_ENDS)
def test_no_answer_swallows_what_follows(end: str) -> None:
    text = to_markdown(dialogue(("q", f"text\n\n{end}"), ("r", "b")))
    assert headings(text)[-2:] == ["Question 2", "Answer 2"]
    assert "b\n" in text


def test_an_answer_that_closes_well_is_not_touched() -> None:
    for answer in ("plain", "```\nx\n```", "<div>\n\n**b**", "- a\n\n  ```\n  b\n  ```", "# Own"):
        assert f"## Answer 1\n\n{answer}\n" in to_markdown(dialogue(("q", answer)))


def test_a_very_long_answer_is_fenced_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_markdown, "PARSED_CHARS", 10)
    assert "\n````\nlonger than ```\n````\n" in to_markdown(dialogue(("q", "longer than ```")))


@settings(max_examples=120, deadline=None)
@given(turns=st.lists(st.tuples(TEXTS, TEXTS), max_size=3), title=TEXTS, system=TEXTS)
def test_every_part_keeps_its_heading(
    turns: list[tuple[str, str]], title: str, system: str
) -> None:
    kept = dialogue(*turns, title=title, system=system)
    text = to_markdown(kept)
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in text)
    wanted = ["System prompt"] if system else []
    for number in range(1, len(turns) + 1):
        wanted += [f"Question {number}", f"Answer {number}"]
    found = iter(headings(text))
    next(found)  # The title.
    assert all(heading in found for heading in wanted)


@settings(max_examples=100, deadline=None)
@given(
    turns=st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
    title=NAMES,
    params=st.builds(
        Params,
        temperature=st.floats(0, 100),
        top_p=st.floats(0.01, 1),
        seed=st.none() | st.integers(0, 2**63 - 1),
        stop=st.lists(NAMES.filter(bool), max_size=3).map(tuple),
    ),
)
def test_json_reads_back_as_it_was(
    turns: list[tuple[str, str]], title: str, params: Params
) -> None:
    turns = [tuple(text.encode("utf-8", "replace").decode() for text in turn) for turn in turns]
    kept = dialogue(*turns, title=title, params=params)
    text = to_json(kept)
    assert "\x1b" not in text
    assert "\u202e" not in text
    back = from_json(text.encode())
    assert back.id == 0
    assert (back.title, back.params, back.turns) == (kept.title, kept.params, kept.turns)
    assert (back.created_at, back.changed_at) == (0.0, 60.0)


def test_an_answer_left_open_is_cut_when_it_is_read_back() -> None:
    kept = Dialogue(id=1, title="t", turns=(KeptTurn(number=0, question="q"),))
    assert from_json(to_json(kept).encode()).turns[0].state == "cut"


GOOD = {"format": "diffuse.conversation", "version": 1, "turns": [{"question": "q"}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "other"}, "no conversation of Diffuse"),
        ({"version": 2}, "newer version"),
        ({"version": 0}, "no conversation"),
        ({"turns": [{"question": 3}]}, "no conversation"),
        ({"turns": [{"question": "q", "state": "odd"}]}, "no conversation"),
        ({"turns": [{"question": "q"}] * 5001}, "no conversation"),
        ({"turns": [{"question": "q" * 1_000_001}]}, "no conversation"),
        ({"title": "t" * 301}, "no conversation"),
        ({"created": -1}, "no conversation"),
        ({"parameters": {"temperature": 1e9}}, "out of bounds"),
        ({"parameters": {"max_tokens": 0}}, "out of bounds"),
        ({"parameters": {"stop": ["x"] * 17}}, "out of bounds"),
        ({"parameters": {"seed": -1}}, "out of bounds"),
    ],
)
def test_what_is_no_conversation_is_refused(change: dict[str, object], why: str) -> None:
    assert from_json(json.dumps(GOOD | {"unknown": 1}).encode()).turns[0].state == "done"
    with pytest.raises(UsageError, match=why):
        from_json(json.dumps(GOOD | change).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b'"\xc3"'])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="no conversation of Diffuse"):
        from_json(data)


def test_the_ending_chooses_the_form() -> None:
    assert file_text(dialogue(), ".JSON").startswith("{")
    assert file_text(dialogue(), ".md").startswith("# Heaps")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("How does a heap work?", "how-does-a-heap-work"),
        ("../../etc/passwd", "etc-passwd"),
        ("  .hidden\n", "hidden"),
        ("Größe & Straße", "grösse-strasse"),
        ("日本語 テスト", "日本語-テスト"),
        ("\x00/\\:*?", "conversation"),
        ("", "conversation"),
        ("CON", "con-chat"),
        ("x" * 500, "x" * 60),
    ],
)
def test_titles_become_safe_names(title: str, name: str) -> None:
    assert slug(title) == name


@given(st.text(st.characters(codec=None), max_size=200))
def test_every_name_is_safe(title: str) -> None:
    name = slug(title)
    assert 0 < len(name) <= 65
    assert len(name.encode()) <= 200
    assert name[0] not in "-."
    assert not set(name) & set('/\\:*?"<>|. \0\n')


@given(st.text(st.characters(codec=None), max_size=200))
def test_first_words_are_one_short_line(question: str) -> None:
    title = first_words(question)
    assert 0 < len(title) <= TITLE_CHARS
    assert title == clean_line(title)
    assert "\n" not in title


def test_first_words_are_cut_between_words() -> None:
    assert first_words("word " * 30) == ("word " * 12).strip() + "…"
    assert first_words("x" * 90) == "x" * 59 + "…"
    assert first_words(" \n") == "untitled"
