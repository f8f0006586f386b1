from __future__ import annotations

import pytest

from diffuse_tui.presenter import slash
from diffuse_tui.presenter.chips import (
    attached_label,
    attached_text,
    chips_in,
    pasted_label,
    resolved,
    typable,
    whole,
    worth_a_chip,
)
from diffuse_tui.presenter.slash import COMMANDS, Said, Unknown, Words, matches, read


def texts(typed: str, words: Words = slash.NO_WORDS) -> list[str]:
    return [match.text for match in matches(typed, words)]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hello /new", "hello /new"),
        (" /new", " /new"),
        ("//etc/hosts is", "/etc/hosts is"),
        ("/new", Said("new", "")),
        ("/SYSTEM  be brief ", Said("system", "be brief")),
        ("/system\nbe\nbrief", Said("system", "be\nbrief")),
        ("/system two\nlines", Said("system", "two\nlines")),
        ("/reganerate", Unknown("reganerate", "regenerate")),
        ("/etc/hosts", Unknown("etc/hosts", None)),
        ("/", Unknown("", None)),
    ],
)
def test_what_is_a_command(typed: str, meant: object) -> None:
    assert read(typed) == meant


def test_an_unknown_command_names_what_was_meant() -> None:
    assert Unknown("exprot", "export").sentence == (
        "there is no command /exprot; did you mean /export?"
    )
    sentence = Unknown("x\x1b" + "y" * 100, None).sentence
    assert "\x1b" not in sentence
    assert sentence.endswith("// sends a question that begins with /")


def test_names_complete() -> None:
    assert texts("/") == [f"/{c.name}{' ' if c.argument else ''}" for c in COMMANDS]
    assert texts("/re") == ["/regenerate", "/rename "]
    assert texts("/at")[0] == "/attach "
    assert texts("/fall") == ["/waterfall"]
    for not_typed in ("", "hello", "//", "/new\n", "/" + "x" * 2_000):
        assert texts(not_typed) == []
    label = matches("/exp")[0].label
    assert label == "/export md|json [PATH]"


def test_arguments_complete() -> None:
    words = Words(("llama-3", "Qwen3"), ("dir/", "dir.txt"))
    assert texts("/model ", words) == ["/model llama-3", "/model Qwen3"]
    assert texts("/model qw", words) == ["/model Qwen3"]
    assert texts("/copy c") == ["/copy code"]
    assert texts("/export ") == ["/export md", "/export json"]
    assert texts("/export md d", words) == ["/export md dir/", "/export md dir.txt"]
    assert texts("/attach d", words) == ["/attach dir/", "/attach dir.txt"]
    assert slash.path_typed("/attach ~/a b.txt") == "~/a b.txt"
    assert slash.path_typed("/export md ") == ""
    assert slash.path_typed("/export md") is None
    assert slash.path_typed("/attach") is None
    assert slash.path_typed("/system /tmp") is None


def test_settings_complete_with_their_bounds() -> None:
    assert texts("/set temp") == ["/set temperature "]
    assert texts("/set top_") == ["/set top-k ", "/set top-p "]
    assert "0 to 100" in matches("/set temp")[0].what
    # With the name typed its bounds stay in sight.
    assert "0 to 100" in matches("/set temperature ")[0].what
    assert texts("/set temperature 0.7 ") == []
    assert texts("/params temperature 0.7 se") == ["/params temperature 0.7 seed "]


def test_what_is_worth_a_chip() -> None:
    assert not worth_a_chip("x" * 2_000)
    assert worth_a_chip("x" * 2_001)
    assert not worth_a_chip("\n" * 20)
    assert worth_a_chip("\n" * 21)


def test_what_stands_in_a_prompt_is_harmless_and_keeps_its_tabs() -> None:
    assert typable("a\tb\r\nc\rd\x1b[2J\ud800") == "a\tb\nc\nd␛[2J\N{REPLACEMENT CHARACTER}"


def test_labels_are_short_and_unique() -> None:
    text = "é\n" * 311 + "e"
    label = pasted_label(text)
    assert label == "[pasted 312 lines, 934 B]"
    assert pasted_label(text, {label}) == "[pasted 312 lines, 934 B #2]"
    assert pasted_label("a\n" * 60).startswith("[pasted 60 lines")
    assert pasted_label("x" * 5_000) == "[pasted 4.9 KiB]"
    odd = attached_label("a[1]\n\x1b.txt", "x")
    assert odd == "[file a_1_ ␛.txt, 1 B]"
    assert chips_in(f"see {odd}!", {odd}) == [(4, 4 + len(odd))]
    assert chips_in("[not one] [", {odd}) == []


def test_chips_are_sent_in_full() -> None:
    chips = {"[pasted 4.9 KiB]": "a [pasted 4.9 KiB] b"}
    assert resolved("x [pasted 4.9 KiB] y [z]", chips) == "x a [pasted 4.9 KiB] b y [z]"
    assert resolved("[z]", {}) == "[z]"


def test_a_file_cannot_end_its_own_block() -> None:
    assert attached_text("a.txt", "one\n") == "\na.txt:\n```\none\n```\n"
    inner = attached_text("a.md", "````\ncode\n````\n")
    assert inner == "\na.md:\n`````\n````\ncode\n````\n`````\n"


def test_edits_take_chips_whole() -> None:
    spans = [(4, 10)]
    assert whole(9, 10, spans) == (4, 10)  # Backspace just behind it.
    assert whole(4, 5, spans) == (4, 10)
    assert whole(0, 6, spans) == (0, 10)
    assert whole(6, 6, spans) == (10, 10)  # Typed within: behind it.
    assert whole(4, 4, spans) == (4, 4)
    assert whole(10, 10, spans) == (10, 10)
    assert whole(10, 11, spans) == (10, 11)
    assert whole(0, 4, spans) == (0, 4)
