"""Members that are null, taken out of a body: null asks for nothing, whatever its name is.

Clients' libraries give back messages as they keep them, with members of their own that are null:
`parsed` and `parsed_arguments` of OpenAI's, `tool_call_id` and more of others.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Within: TypeAlias = "dict[str, Within]"

OF_BODIES: Within = {
    "messages": {"content": {}, "tool_calls": {"function": {}}},
    "tools": {"function": {}},
    "stream_options": {},
    "response_format": {},
    "diffuse": {},
}
"""The members that are objects of the API, or lists of them. In others null may mean something."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])


def without_nulls(body: bytes, within: Within = OF_BODIES) -> bytes:
    """The same JSON without null members, in an object, or in each of a list.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    match body.lstrip()[:1]:
        case b"{":
            members = {
                name: _slim(value, within[name]) if name in within else value
                for name, value in _object.decode(body).items()
                if bytes(value) != b"null"
            }
            return msgspec.json.encode(members)
        case b"[":
            return msgspec.json.encode([_slim(value, within) for value in _list.decode(body)])
        case _:
            return body


def _slim(value: msgspec.Raw, within: Within) -> msgspec.Raw:
    return msgspec.Raw(without_nulls(bytes(value), within))
