"""Bodies from bytes, strictly: with errors that name the field and tell what it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from diffuse_core.adapters.openai_server.bodies import ABSENT, ChatFields, TextFields
from diffuse_core.adapters.openai_server.errors import ApiError
from diffuse_core.adapters.openai_server.nulls import without_nulls
from diffuse_core.adapters.openai_server.unsupported import (
    FOR_CHAT,
    FOR_TEXT,
    HARMLESS,
    Unsupported,
    check_refused,
    unknown_field,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_Fields = TypeVar("_Fields", ChatFields, TextFields)

_UNKNOWN = "Object contains unknown field `"
_MISSING = "Object missing required field `"
_MAX_NAME = 80


def _strict(fields: type[_Fields], refusals: Mapping[str, Unsupported]) -> type[_Fields]:
    """The same fields and those that are refused by name, and none else."""
    refused = [(name, msgspec.Raw, ABSENT) for name in (*refusals, *HARMLESS)]
    strict = msgspec.defstruct(
        fields.__name__, refused, bases=(fields,), kw_only=True, forbid_unknown_fields=True
    )
    return cast("type[_Fields]", strict)


_chat = msgspec.json.Decoder(_strict(ChatFields, FOR_CHAT))
_text = msgspec.json.Decoder(_strict(TextFields, FOR_TEXT))


def chat_fields(body: bytes) -> ChatFields:
    """The body of a chat completion's request.

    Raises:
        ApiError: it is no JSON, a field is unknown or not supported, or a value is none of its.
    """
    fields = decoded(_chat, body)
    check_refused(fields, FOR_CHAT)
    return fields


def text_fields(body: bytes) -> TextFields:
    """The body of a text completion's request. Raises ApiError as `chat_fields`."""
    fields = decoded(_text, body)
    check_refused(fields, FOR_TEXT)
    return fields


def decoded(decoder: msgspec.json.Decoder[_Fields], body: bytes) -> _Fields:
    """What a decoder makes of a body. Raises ApiError."""
    try:
        str(body, "utf-8")  # Parts that are kept as they are would not be looked at.
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            if not str(error).startswith(_UNKNOWN):
                raise
            return decoder.decode(without_nulls(body))
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise _no_json("lists and objects lie too deep in each other") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_json(str(error)) from None


def _no_json(why: str) -> ApiError:
    message = f"the body is no valid JSON ({why}); send one JSON object in UTF-8"
    return ApiError(400, message, code="invalid_json")


def _wrong_field(told: str) -> ApiError:
    """What msgspec tells, as the API does: "WHAT", or "WHAT - at `$.PATH`"."""
    what, at, path = told.rpartition(" - at `$")
    what, path = (what, path[:-1].removeprefix(".")) if at else (told, "")
    if what.startswith(_UNKNOWN):
        return unknown_field(what[len(_UNKNOWN) : -1][:_MAX_NAME], path)
    if what.startswith(_MISSING):
        name = what[len(_MISSING) : -1]
        name = f"{path}.{name}" if path else name
        message = f"{name}: it is required; add it"
        return ApiError(400, message, code="missing_required_parameter", param=name)
    what = what[:1].lower() + what[1:].replace("`", "")
    if not path:
        return ApiError(400, f"the body: {what}; send one JSON object")
    return ApiError(400, f"{path}: {what}; correct this field", param=path)
