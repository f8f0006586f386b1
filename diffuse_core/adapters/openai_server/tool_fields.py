"""The tools of a request, and whether the model may call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.openai_server.errors import ApiError, invalid, unsupported
from diffuse_core.adapters.openai_server.unsupported import is_given
from diffuse_core.domain.tools import MAX_CALL_CHARS, Tool, json_object
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.bodies import ChatFields, ToolField

_LONGEST_CHOICE = 16


def offered_tools(fields: ChatFields) -> tuple[Tool, ...]:
    """The tools that the model is told of: none where it is not to call any.

    Raises:
        ApiError: a tool is no function, or the model is to be forced to call one.
    """
    tools = tuple(_tool(each, f"tools[{index}]") for index, each in enumerate(fields.tools or ()))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise invalid("tools", "two of them have the same name; rename one")
    return tools if _may_call(fields.tool_choice) else ()


def _may_call(choice: msgspec.Raw) -> bool:
    if not is_given(choice):
        return True
    data = bytes(choice)
    word = msgspec.json.decode(data) if len(data) <= _LONGEST_CHOICE else None
    if word in ("auto", "none"):
        return bool(word == "auto")
    why = (
        'the model is not constrained, so that it cannot be made to call anything; send "auto" '
        'or "none"'
    )
    raise unsupported("tool_choice", why)


def _tool(given: ToolField, at: str) -> Tool:
    if given.type != "function" or is_given(given.custom):
        raise unsupported(given.type, "only functions are", f"{at}.type")
    if (function := given.function) is None:
        raise invalid(f"{at}.function", "it is required; add it")
    if function.strict:
        why = "the model is not constrained; leave it out"
        raise unsupported("strict", why, f"{at}.function.strict")
    schema = bytes(function.parameters).decode() if is_given(function.parameters) else ""
    _check_schema(schema, f"{at}.function.parameters")
    return Tool(name=function.name, description=function.description or "", parameters=schema)


def _check_schema(schema: str, at: str) -> None:
    if len(schema) > MAX_CALL_CHARS:
        raise invalid(at, f"a schema may have {MAX_CALL_CHARS} characters; shorten it")
    try:
        json_object(schema, at)
    except UsageError as error:
        raise ApiError(400, str(error), param=at) from None
