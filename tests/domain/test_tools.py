from __future__ import annotations

import msgspec
import pytest

from diffuse_core.domain.tools import MAX_DEPTH, MAX_TOOLS, Tool, json_object, too_deep
from diffuse_core.domain.view import ChatMessage, GenerateRequest
from diffuse_core.errors import UsageError


def nested(depth: int, *, lists: bool = False) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


def test_an_object_is_read_and_nothing_else() -> None:
    assert json_object('{"a": [1, "é", null]}', "x") == {"a": [1, "é", None]}
    assert json_object("", "x") == {}
    for text in ("[1]", "1", '"a"', "null"):
        with pytest.raises(UsageError, match="the schema: a JSON object is expected"):
            json_object(text, "the schema")
    for text in ("{", "{'a': 1}", '{"a": NaN}', "{}{}", "\ud800", "[" * 100_000):
        with pytest.raises(UsageError, match="the schema: no valid JSON"):
            json_object(text, "the schema")


@pytest.mark.parametrize("lists", [False, True])
def test_depth_is_bounded(lists: bool) -> None:
    assert not too_deep(nested(MAX_DEPTH, lists=lists))
    assert too_deep(nested(MAX_DEPTH + 1, lists=lists))
    assert not too_deep("text")
    with pytest.raises(UsageError, match="levels of nesting"):
        json_object(msgspec.json.encode(nested(MAX_DEPTH + 1)).decode(), "x")


def test_requests_bound_their_tools() -> None:
    request = GenerateRequest(model="m", tools=(Tool(name="f"),) * (MAX_TOOLS + 1))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(request), GenerateRequest)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": ""}, Tool)


def test_older_messages_have_no_tools() -> None:
    """What versions before tools wrote is read as it was meant."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    request = msgspec.convert(asked, GenerateRequest)
    assert request.messages == (ChatMessage("user", "hi"),)
    assert request.tools == ()
