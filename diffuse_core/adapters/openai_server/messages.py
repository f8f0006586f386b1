"""The messages of a chat, as the model's template gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.openai_server.errors import ApiError, invalid, unsupported
from diffuse_core.adapters.openai_server.unsupported import is_given
from diffuse_core.domain.tools import ToolCall, json_object
from diffuse_core.domain.view import ChatMessage
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.bodies import Call, Message, Part
    from diffuse_core.adapters.openai_server.limits import ApiLimits

_ROLES = ("system", "developer", "user", "assistant", "tool")
_JSON_ONLY = (
    "Answer with one valid JSON object and nothing else: no explanation and no code fence."
)


def chat_messages(given: list[Message], limits: ApiLimits) -> tuple[ChatMessage, ...]:
    """The conversation; "developer" is another word for "system", parts become lines.

    Raises:
        ApiError: a message is not as the API has it, or holds what no model here takes.
    """
    if len(given) > limits.messages:
        raise invalid("messages", f"a chat may have {limits.messages} messages; send fewer")
    messages = tuple(_message(each, f"messages[{index}]") for index, each in enumerate(given))
    if sum(map(_length, messages)) > limits.characters:
        raise invalid("messages", f"a chat may have {limits.characters} characters; shorten it")
    return messages


def asking_for_json(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The conversation with the wish for JSON in its system message.

    That is all that is done for it: the model is not constrained. So the messages need not have
    the word JSON in them, as OpenAI asks for.
    """
    if messages[0].role != "system":
        return ChatMessage("system", _JSON_ONLY), *messages
    return ChatMessage("system", f"{messages[0].content}\n\n{_JSON_ONLY}"), *messages[1:]


def _length(message: ChatMessage) -> int:
    own = len(message.content) + len(message.reasoning)
    return own + sum(len(call.arguments) for call in message.tool_calls)


def _message(given: Message, at: str) -> ChatMessage:
    _check_fields(given, at)
    content = _content(given, at)
    calls = tuple(_call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(_calls(given, at)))
    name = given.name or ""
    match given.role:
        case "system" | "developer":
            return ChatMessage("system", content, name=name)
        case "user":
            return ChatMessage("user", content, name=name)
        case "assistant":
            thought = given.reasoning_content or given.reasoning or ""
            return ChatMessage("assistant", content, calls, name=name, reasoning=thought)
        case _:
            return ChatMessage("tool", content, tool_call_id=given.tool_call_id or "", name=name)


def _check_fields(given: Message, at: str) -> None:
    if given.role == "function":
        raise unsupported("function", 'it was replaced by the role "tool"; use that', f"{at}.role")
    if given.role not in _ROLES:
        raise invalid(f"{at}.role", f"it may be one of {', '.join(_ROLES)}")
    for name in ("refusal", "audio", "function_call", "annotations"):
        value = getattr(given, name)
        if is_given(value) and bytes(value) != b"[]":
            raise unsupported(name, "models here are given text; leave it out", f"{at}.{name}")
    if given.tool_call_id is not None and given.role != "tool":
        raise invalid(f"{at}.tool_call_id", 'only messages of the role "tool" have it')
    for name in ("reasoning_content", "reasoning"):
        if getattr(given, name) and given.role != "assistant":
            raise invalid(f"{at}.{name}", 'only messages of the role "assistant" have it')
    if given.tool_call_id is None and given.role == "tool":
        raise _missing(f"{at}.tool_call_id", "name the call that this is the result of")


def _content(given: Message, at: str) -> str:
    if given.content is None:
        if given.role == "assistant":
            return ""
        raise _missing(f"{at}.content", "add it; it may be a text, or a list of text parts")
    if isinstance(given.content, str):
        return given.content
    parts = enumerate(given.content)
    return "\n".join(_part(part, f"{at}.content[{index}]") for index, part in parts)


def _part(part: Part, at: str) -> str:
    if part.type != "text":
        raise unsupported(part.type, "models here take text; send text parts", f"{at}.type")
    for name in ("image_url", "input_audio", "video_url", "file", "refusal"):
        if is_given(getattr(part, name)):
            raise unsupported(name, "models here take text; leave it out", f"{at}.{name}")
    if part.text is None:
        raise _missing(f"{at}.text", "add it")
    return part.text


def _calls(given: Message, at: str) -> list[Call]:
    if given.tool_calls and given.role != "assistant":
        raise invalid(f"{at}.tool_calls", 'only messages of the role "assistant" have them')
    return given.tool_calls or []


def _call(given: Call, at: str) -> ToolCall:
    if given.type != "function":
        raise unsupported(given.type, "only functions can be called", f"{at}.type")
    if given.function is None:
        raise _missing(f"{at}.function", "add it")
    try:
        json_object(given.function.arguments, f"{at}.function.arguments")
    except UsageError as error:
        raise ApiError(400, str(error), param=f"{at}.function.arguments") from None
    return ToolCall(id=given.id, name=given.function.name, arguments=given.function.arguments)


def _missing(param: str, what: str) -> ApiError:
    message = f"{param}: it is required; {what}"
    return ApiError(400, message, code="missing_required_parameter", param=param)
