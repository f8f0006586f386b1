"""Chats and tools as the plain values that chat templates are written for.

The shapes are those of transformers' `apply_chat_template`: a tool is
`{"type": "function", "function": {"name", "description", "parameters"}}`, and a call of one is
`{"id", "type": "function", "function": {"name", "arguments"}}`, arguments being an object.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.tool_formats import (
    SHORT_ID,
    wants_calls_as_text,
    wants_short_ids,
)
from diffuse_core.domain.tools import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diffuse_core.domain.tools import Tool, ToolCall
    from diffuse_core.domain.view import ChatMessage

NO_PARAMETERS = {"type": "object", "properties": {}}

Values = list[dict[str, Any]]


class ChatValues:
    """Makes values in the way that one chat template wants them."""

    def __init__(self, template: str) -> None:
        """`template` is its source.

        A message of calls alone has an empty content: many templates fail without one, and none
        of those of well-known models with tools needs it to be None.
        """
        self._short = wants_short_ids(template)
        self._as_text = wants_calls_as_text(template)

    def messages(self, messages: Sequence[ChatMessage]) -> Values:
        """The messages; what came of a call gets the name of its tool.

        Raises:
            UsageError: a call's arguments are no JSON object.
        """
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return [self._message(message, names) for message in messages]

    def _message(self, message: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
        value: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            calls = [self._call(call) for call in message.tool_calls]
            value["tool_calls"] = calls
            if self._as_text:
                value["content"] = "\n".join(filter(None, (message.content, *map(_text, calls))))
        if message.tool_call_id:
            value["tool_call_id"] = self._id(message.tool_call_id)
        if name := message.name or (message.role == "tool" and names.get(message.tool_call_id)):
            value["name"] = name
        if message.reasoning:
            value["reasoning_content"] = message.reasoning
        return value

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments = json_object(call.arguments, f"the arguments of a call of {call.name!r}")
        value: dict[str, Any] = {"id": self._id(call.id)} if call.id else {}
        function = {"name": call.name, "arguments": arguments}
        return value | {"type": "function", "function": function}

    def _id(self, text: str) -> str:
        plain = text.isascii() and text.isalnum() and len(text) == SHORT_ID
        if not self._short or plain:
            return text
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:SHORT_ID]


def _text(call: dict[str, Any]) -> str:
    """A call as a model of the format "hermes" writes it."""
    written = json.dumps(call["function"], ensure_ascii=False)
    return f"<tool_call>\n{written}\n</tool_call>"


def tool_values(tools: Iterable[Tool]) -> Values:
    """The tools. Raises UsageError when the parameters of one are no JSON object."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json_object(
                    tool.parameters, f"the parameters of the tool {tool.name!r}"
                )
                or NO_PARAMETERS,
            },
        }
        for tool in tools
    ]
