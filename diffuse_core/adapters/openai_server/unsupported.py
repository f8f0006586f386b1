"""Fields of the API that are refused by name, and the values of them that change nothing.

`null` changes nothing anywhere. The fields under `HARMLESS` are read by whoever bills, stores or
watches; there is nobody of that kind here, so that any value of theirs is the same to an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diffuse_core.adapters.openai_server.errors import ApiError, invalid, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_NEUTRAL = 64
_LONGEST_HARMLESS = 16_384


class Unsupported(NamedTuple):
    """Why a field is refused, and its values (as compact JSON) that ask for nothing."""

    why: str
    neutral: tuple[bytes, ...] = ()


_TEXT_ONLY = "models here take and give text; leave it out"
_LEGACY = "it was replaced by `tools`; send those"

FOR_BOTH = {
    "store": Unsupported("nothing is kept; leave it out", (b"false",)),
    "service_tier": Unsupported("there is one tier; leave it out", (b'"auto"', b'"default"')),
}
FOR_CHAT = FOR_BOTH | {
    "audio": Unsupported(_TEXT_ONLY),
    "modalities": Unsupported('answers are text; leave it out, or send ["text"]', (b'["text"]',)),
    "prediction": Unsupported("there are no predicted outputs; leave it out"),
    "reasoning_effort": Unsupported(
        "models here have no such setting; leave it out", (b'"none"',)
    ),
    "verbosity": Unsupported("models here have no such setting; ask for it in a message"),
    "web_search_options": Unsupported("models here cannot search; leave it out"),
    "moderation": Unsupported("nothing is moderated; leave it out"),
    "functions": Unsupported(_LEGACY),
    "function_call": Unsupported(_LEGACY),
    "prompt_cache_options": Unsupported("no prompts are kept between requests; leave it out"),
    "prompt_cache_retention": Unsupported(
        "no prompts are kept between requests; leave it out", (b'"in_memory"',)
    ),
}
FOR_TEXT = FOR_BOTH | {
    "echo": Unsupported("the prompt is not given back; leave it out", (b"false",)),
    "suffix": Unsupported("models here continue a text and fill no gaps; leave it out"),
}
HARMLESS = ("metadata", "safety_identifier", "prompt_cache_key")


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field was sent, with another value than null."""
    return bytes(raw) not in (b"", b"null")


def check_refused(body: object, refusals: Mapping[str, Unsupported]) -> None:
    """Refuse the first field that asks for what is not supported.

    Raises:
        ApiError: one does, or a harmless one is very long.
    """
    for name, refusal in refusals.items():
        raw: msgspec.Raw = getattr(body, name)
        if is_given(raw) and _compact(raw) not in refusal.neutral:
            raise unsupported(name, refusal.why)
    for name in HARMLESS:
        if len(bytes(getattr(body, name))) > _LONGEST_HARMLESS:
            raise invalid(name, f"more than {_LONGEST_HARMLESS} bytes; send less, or leave it out")


def unknown_field(name: str, within: str) -> ApiError:
    """The refusal of a field that nobody knows."""
    path = f"{within}.{name}" if within else name
    return unsupported(path, "no such field is known; leave it out")


def _compact(raw: msgspec.Raw) -> bytes:
    data = bytes(raw)
    if len(data) > _LONGEST_NEUTRAL:
        return data
    return msgspec.json.encode(msgspec.json.decode(data))
