"""Tools: functions that a model may ask its caller to call, and the calls that it asks for.

A model never calls anything itself. Its chat template tells it of the tools, it answers with
calls as text (see domain.tool_calls), and the caller sends what came of each call as a message.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from diffuse_core.errors import UsageError

MAX_TOOLS = 128
MAX_TOOL_CALLS = 128
"""Of one message, and of one answer."""
MAX_CALL_CHARS = 262_144
"""Characters of JSON that the arguments of one call, or the schema of one tool, may take."""
MAX_DEPTH = 64
"""Levels of lists and objects inside each other."""

ToolFormat = Literal["hermes", "llama", "mistral", "mistral-args"]
"""How a model writes its calls down (see domain.tool_formats)."""

ToolName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
CallId = Annotated[str, msgspec.Meta(max_length=256)]
JsonText = Annotated[str, msgspec.Meta(max_length=MAX_CALL_CHARS)]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may ask for; `parameters` is a JSON schema, as JSON text.

    Without `parameters` it takes none.
    """

    name: ToolName
    description: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    parameters: JsonText = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model asked for; `arguments` is a JSON object, as JSON text.

    The message with what came of it names the call by its `id`.
    """

    id: CallId = ""
    name: ToolName
    arguments: JsonText = "{}"


def json_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object that `text` is; `what` names it in the error ("" is an empty object).

    Raises:
        UsageError: it is none, or lists and objects lie too deep in each other.
    """
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what}: no valid JSON ({error}); send a JSON object") from error
    if not isinstance(value, dict):
        raise UsageError(f"{what}: a JSON object is expected, such as {{}}")
    if too_deep(value):
        raise UsageError(f"{what}: more than {MAX_DEPTH} levels of nesting; make it flatter")
    return value


def too_deep(value: object, most: int = MAX_DEPTH) -> bool:
    """Whether lists and objects lie more than `most` levels deep in each other."""
    level = [value]
    for _ in range(most + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True
