from __future__ import annotations

import time

import pytest

from diffuse_core.domain.tool_formats import (
    find_format,
    tools_name,
    wants_calls_as_text,
    wants_short_ids,
)

LOOP = "{% for t in tools %}{{ t | tojson }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (LOOP, "tools"),
        ("{%- if tools is not none -%}x{%- endif -%}", "tools"),
        ("{{ tools }}", "tools"),
        ("{{ 'a' ~ tools[0].name }}", "tools"),
        ("", None),
        ("You have tools. {{ messages }}", None),
        ("{{ 'no tools' }}{{ \"tools\" }}", None),
        ("{{ xml_tools }}{{ toolset }}", "xml_tools"),
        ("{{ xml_tools or tools }}", "tools"),
        ("{{ python_tools }}{{ toolset }}", None),
        ("{# tools #}{{ messages }} tools", None),
    ],
)
def test_a_template_knows_tools_when_it_uses_them(source: str, name: str | None) -> None:
    assert tools_name(source) == name


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (LOOP + '<tool_call>{"name": 1, "arguments": 2}</tool_call>', "hermes"),
        (LOOP + '<tool_call>{"name": 1}{"parameters": 2}', "hermes"),
        (LOOP + "<tool_call><function=f><parameter=a>", None),
        (LOOP + "<tool_call>f<arg_key>a</arg_key>", None),
        (LOOP + '{"name": "f", "parameters": {}}', "llama"),
        (LOOP + "[TOOL_CALLS] [", "mistral"),
        (LOOP + "[TOOL_CALLS]f[ARGS]", "mistral-args"),
        (LOOP, None),
        (LOOP + '"name": ', None),
        (LOOP + '{"name": "f", "description": "d", "parameters": {}}', None),
        (LOOP + '{"tool_name": "f", "parameters": {}}', None),
        (LOOP + '<tool_call><invoke name="f">', None),
        ("<tool_call>", None),
    ],
)
def test_the_format_is_told_by_what_stands_around_calls(source: str, form: str | None) -> None:
    assert find_format(source) == form


def test_what_else_a_template_wants() -> None:
    assert wants_calls_as_text(LOOP + "<tool_call>{}</tool_call>")
    assert not wants_calls_as_text(LOOP + "<tool_call>{{ message.tool_calls }}</tool_call>")
    assert not wants_calls_as_text(LOOP)
    assert wants_short_ids("raise_exception('length 9!')")
    assert not wants_short_ids("{{ id | length }}")


@pytest.mark.parametrize(
    "part", ["{%", "{{ '", "{{ \"'", "tools", "'", "[", '{"name": ', "<tool_call>"]
)
def test_a_hostile_template_is_looked_through_at_once(part: str) -> None:
    source = part * (200_000 // len(part))
    started = time.process_time()
    find_format(source)
    wants_calls_as_text(source)
    assert time.process_time() - started < 5
