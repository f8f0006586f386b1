"""Calls of tools in an answer: found in any cutting of the text, nothing lost or told twice."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diffuse_core.domain import tool_calls
from diffuse_core.domain.tool_calls import MAX_HEAD, MAX_SPACE, CallParser, FoundCall, Piece
from diffuse_core.domain.tools import MAX_CALL_CHARS, MAX_DEPTH, MAX_TOOL_CALLS

FORMS = ("hermes", "llama", "mistral", "mistral-args")
ARGUMENTS = [
    {},
    {"city": "Paris", "days": 3},
    {"text": 'a "quoted" } brace ] and \\ "', "deep": {"list": [1, {"é": "日本 🙂"}]}},
    {"trap": "</tool_call><tool_call>[TOOL_CALLS]{", "end": "\\"},
]


def read(form: str, *deltas: str) -> list[Piece]:
    """Everything that comes out, texts that follow each other as one."""
    parser = CallParser(form)
    out: list[Piece] = []
    pieces = [piece for delta in deltas for piece in parser.push(delta)] + parser.flush()
    for piece in pieces:
        assert piece != ""
        if isinstance(piece, str) and out and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def written(form: str, name: str, arguments: dict) -> str:
    """How a model of a format writes one call."""
    text = json.dumps(arguments, ensure_ascii=False)
    call = {"name": name, "arguments": arguments}
    if form == "hermes":
        return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
    if form == "llama":
        return f'{{"name": "{name}", "parameters": {text}}}'
    if form == "mistral":
        return f"[TOOL_CALLS] [{json.dumps(call, ensure_ascii=False)}]"
    return f"[TOOL_CALLS]{name}[ARGS]{text}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_a_call_is_found_however_the_text_is_cut(form: str, arguments: dict) -> None:
    text = written(form, "f", arguments)
    whole = read(form, text)
    (call,) = whole
    assert isinstance(call, FoundCall)
    assert (call.name, json.loads(call.arguments)) == ("f", arguments)
    for cut in range(len(text)):
        assert read(form, text[:cut], text[cut:]) == whole
    assert read(form, *text) == whole


@pytest.mark.parametrize("form", FORMS)
def test_several_calls_are_told_in_order_with_what_is_between(form: str) -> None:
    first, second = written(form, "f", {"a": 1}), written(form, "g", {})
    expected = [FoundCall("f", '{"a": 1}'), FoundCall("g", "{}")]
    assert read(form, f"\n{first}\n{second}\n\n") == expected
    if form != "llama":
        assert read(form, f"Let me see. {first}\nand {second} done") == [
            "Let me see.", expected[0], "\nand", expected[1], " done",
        ]  # fmt: skip


def test_a_call_after_text_is_like_one_at_the_beginning() -> None:
    text = 'Hm.\n<|python_tag|>{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}}\n'
    expected = ["Hm.", FoundCall("f", "{}"), FoundCall("g", "{}")]
    assert read("llama", text) == expected
    assert read("llama", *text) == expected


def test_a_call_is_told_before_it_is_closed() -> None:
    parser = CallParser("hermes")
    assert parser.push('So: <tool_call>{"name": "f", "arguments": {"a": 1}') == ["So:"]
    assert parser.push("}") == [FoundCall("f", '{"a": 1}')]
    assert parser.push("\n</tool_call>") == []
    assert parser.push("x") == ["x"]


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        ("mistral", '[TOOL_CALLS][{"name":"f","arguments":{}},{"name":"g","arguments":{}}]', "fg"),
        ("mistral", '[TOOL_CALLS]{"name":"f","arguments":{}}', "f"),
        ("hermes", '<tool_call>[{"name":"f","arguments":{}}]</tool_call>', "f"),
        ("hermes", '<tool_call>{"name":"f","arguments":"{}"}', "f"),
        ("llama", '<|python_tag|>{"type":"function","name":"f","parameters":{}}', "f"),
        ("llama", '{"name":"f","parameters":{}}; {"name":"g","arguments":{}}', "fg"),
        ("mistral-args", "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS] {}[TOOL_CALLS]g[ARGS]{}", "fg"),
    ],
)
def test_other_ways_to_write_calls(form: str, text: str, calls: str) -> None:
    for found in (read(form, text), read(form, *text)):
        assert found == [FoundCall(name, "{}") for name in calls]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", "no calls <tool_cal at all {}  "),
        ("hermes", "<tool_call>"),
        ("hermes", "  "),
        ("hermes", "a <tool_call> b </tool_call>"),
        ("hermes", '<tool_call>{"name": "f"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": null}'),
        ("hermes", '<tool_call>{"name": "", "arguments": {}}'),
        ("hermes", '<tool_call>{"name": "f", "arguments": "no object"}'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {]}}'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": tru}}'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"half": "\\'),
        ("hermes", "<tool_call>[]</tool_call>"),
        ("hermes", "<tool_call>" + " " * (MAX_HEAD + 1) + '{"name": "f", "arguments": {}}'),
        ("llama", '{"answer": 42} and text'),
        ("llama", 'text {"name": "f", "parameters": {}}'),
        ("llama", '\n{"name": "Bob"}'),
        ("mistral", "[TOOL_CALLS] none"),
        ("mistral-args", '[TOOL_CALLS][{"name": "f", "arguments": {}}]'),
        ("mistral-args", "[TOOL_CALLS]" + "f" * (MAX_HEAD + 1)),
        ("mistral-args", "[TOOL_CALLS]f[ARGS]no"),
        ("mistral-args", "[TOOL_CALLS]f[ARGS]{no}"),
        ("hermes", '<tool_call>{"name": "f", "arguments": ' + "{" * 70 + "}" * 71),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"\ud800": 1}}'),
    ],
)
def test_what_is_no_call_comes_out_as_text(form: str, text: str) -> None:
    assert read(form, text) == [text]
    assert read(form, *text) == [text]


def test_a_true_call_after_a_false_one_is_found() -> None:
    text = '<tool_call>oops <tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert read("hermes", text) == ["<tool_call>oops", FoundCall("f", "{}")]
    assert read("hermes", *text) == ["<tool_call>oops", FoundCall("f", "{}")]


def test_arguments_in_a_string_may_not_be_deeper_than_others() -> None:
    deep = json.dumps('{"a":' * (MAX_DEPTH + 2) + "1" + "}" * (MAX_DEPTH + 2))
    text = f'<tool_call>{{"name": "f", "arguments": {deep}}}'
    assert read("hermes", text) == [text]


def test_space_without_measure_is_not_dropped() -> None:
    call, far = written("hermes", "f", {}), " " * (MAX_SPACE + 1)
    for text, expected in (
        (far + call, [" ", FoundCall("f", "{}")]),
        (call + far, [FoundCall("f", "{}"), " "]),
        (call[: -len("</tool_call>")] + far + "</tool_call>", None),
    ):
        found = read("hermes", text)
        assert read("hermes", *text) == found
        assert found == (expected or [FoundCall("f", "{}"), "\n" + far + "</tool_call>"])


def test_a_call_that_never_ends_is_given_up() -> None:
    text = '<tool_call>{"a": "' + "x" * MAX_CALL_CHARS + '"}</tool_call>'
    parser = CallParser("hermes")
    told = "".join(p for at in range(0, len(text), 4096) for p in parser.push(text[at:][:4096]))
    assert len(told) > MAX_CALL_CHARS
    assert told + "".join(parser.flush()) == text
    assert read("hermes", text) == [text]


def test_calls_beyond_the_most_are_text() -> None:
    one = written("hermes", "f", {})
    found = read("hermes", one * (MAX_TOOL_CALLS + 2))
    assert found == [FoundCall("f", "{}")] * MAX_TOOL_CALLS + [one * 2]
    many = json.dumps([{"name": "f", "arguments": {}}] * (MAX_TOOL_CALLS + 1))
    assert read("mistral", "[TOOL_CALLS]" + many) == ["[TOOL_CALLS]" + many]


PARTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
        '{"name": "f", "arguments": {"a": "}{\\""}}', '{"name": "f", "parameters": {}}', "[", "]",
        "{", "}", '"', "\\", " ", "\n", ";", "f", "é🙂", '{"name"', "<tool", "<", " " * 40,
    ]
)  # fmt: skip


@given(st.sampled_from(FORMS), st.lists(PARTS, max_size=12), st.data())
@settings(max_examples=150)
def test_no_cutting_changes_what_comes_out(
    form: str, parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    whole = read(form, text)
    assert read(form, *text) == whole
    assert read(form, *parts) == whole
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    edges = [0, *cuts, len(text)]
    assert read(form, *(text[a:b] for a, b in pairwise(edges))) == whole


@given(st.text(alphabet='<>/tol_ca{}[]" \\a', max_size=60))
@example("<tool_call>")
def test_text_without_calls_is_kept_to_the_last_character(text: str) -> None:
    for form in ("hermes", "mistral", "mistral-args"):
        assert read(form, text) == [text] * bool(text)


def test_the_formats_are_all_there() -> None:
    assert set(FORMS) == set(tool_calls.GRAMMARS)
