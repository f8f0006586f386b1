"""How models write the calls of tools, found out from their chat templates.

- "hermes" (Hermes, Qwen 2.5 and 3, SmolLM): `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
- "llama" (Llama 3.1 to 3.3): the answer is `{"name": …, "parameters": {…}}`
- "mistral": `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`
- "mistral-args" (later ones of Mistral): `[TOOL_CALLS]name[ARGS]{…}`
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.domain.tools import ToolFormat

_CODE = re.compile(r"\{[%{]")
_CODE_END = re.compile(r"[%}]\}")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TOOLS = re.compile(r"\b(?:xml_)?tools\b")
_LLAMA = re.compile(r'\{"name": (?:(?!description).){0,120}"parameters": ', re.DOTALL)
"""A call; where a tool is described its name and its parameters have a description between."""
_OTHER_CALLS = ("<function=", "<arg_key>", "<parameter=", "<invoke")
"""What stands in `<tool_call>` where that holds no JSON."""

ToolsName = Literal["tools", "xml_tools"]

SHORT_ID = 9
"""Characters of a call's id that templates of Mistral insist on."""


class Grammar(NamedTuple):
    """Where calls stand in an answer, around their JSON.

    A call begins with `opener` anywhere; where `bare`, its JSON also begins the answer or follows
    another call without one. `head` is between opener and JSON, which begins with one of `starts`;
    it may name the tool. `closer` may follow the JSON.
    """

    opener: str
    closer: str = ""
    bare: bool = False
    starts: str = "{["
    head: re.Pattern[str] = re.compile(r"\s*")


GRAMMARS: Mapping[ToolFormat, Grammar] = {
    "hermes": Grammar("<tool_call>", "</tool_call>"),
    "llama": Grammar("<|python_tag|>", ";", bare=True, starts="{"),
    "mistral": Grammar("[TOOL_CALLS]"),
    "mistral-args": Grammar(
        "[TOOL_CALLS]",
        starts="{",
        head=re.compile(
            r"\s*(?P<name>[^\s\[\]{}]{1,256})\s*(?:\[CALL_ID\][^\[\]{}]{0,64})?\[ARGS\]\s*"
        ),
    ),
}

SHOWN_TOKENS = frozenset(
    {"<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
)
"""Special tokens that are part of a call's text."""


def tools_name(template: str) -> ToolsName | None:
    """By which name a chat template takes tools; None where it does nothing with any.

    SmolLM3's takes them as `xml_tools`.
    """
    names: set[str] = set()
    for piece in _CODE.split(template)[1:]:
        code = _CODE_END.split(piece, maxsplit=1)[0]
        names.update(_TOOLS.findall(_QUOTED.sub("", code)))
    if "tools" in names:
        return "tools"
    return "xml_tools" if names else None


def find_format(template: str) -> ToolFormat | None:
    """How the model of a chat template writes calls; None where that is not known."""
    if tools_name(template) is None:
        return None
    if "[TOOL_CALLS]" in template:
        return "mistral-args" if "[ARGS]" in template else "mistral"
    if "<tool_call>" in template:
        return None if any(word in template for word in _OTHER_CALLS) else "hermes"
    return "llama" if _LLAMA.search(template) else None


def wants_calls_as_text(template: str) -> bool:
    """Whether calls must stand in a message's text, where a template passes over others."""
    return "tool_calls" not in template and find_format(template) == "hermes"


def wants_short_ids(template: str) -> bool:
    """Whether calls need ids of SHORT_ID letters and digits."""
    return "length 9" in template or "length != 9" in template
