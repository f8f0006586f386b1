"""Fields of the API that are refused by name, and the values of them that change nothing.

`null` changes nothing anywhere. The fields under `HARMLESS` are read by whoever bills, stores or
watches; there is nobody of that kind here, so that any value of theirs is the same to an answer.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from diffuse_core.adapters.openai_server.errors import ApiError, invalid, unsupported

_LONGEST_NEUTRAL = 64
_LONGEST_HARMLESS = 16_384


class Refusal(NamedTuple):
    """Why a field is refused, and its values (as compact JSON) that ask for nothing."""

    why: str
    neutral: tuple[bytes, ...] = ()


_TEXT_ONLY = "models here take and give text; leave it out"
_LEGACY = "it was replaced by `tools`; send those"

FOR_BOTH = {
    "store": Refusal("nothing is kept; leave it out", (b"false",)),
    "service_tier": Refusal("there is one tier; leave it out", (b'"auto"', b'"default"')),
}
FOR_CHAT = FOR_BOTH | {
    "audio": Refusal(_TEXT_ONLY),
    "modalities": Refusal('answers are text; leave it out, or send ["text"]', (b'["text"]',)),
    "prediction": Refusal("there are no predicted outputs; leave it out"),
    "reasoning_effort": Refusal("models here have no such setting; leave it out", (b'"none"',)),
    "verbosity": Refusal("models here have no such setting; ask for it in a message"),
    "web_search_options": Refusal("models here cannot search; leave it out"),
    "moderation": Refusal("nothing is moderated; leave it out"),
    "functions": Refusal(_LEGACY),
    "function_call": Refusal(_LEGACY),
    "prompt_cache_options": Refusal("no prompts are kept between requests; leave it out"),
    "prompt_cache_retention": Refusal(
        "no prompts are kept between requests; leave it out", (b'"in_memory"',)
    ),
}
FOR_TEXT = FOR_BOTH | {
    "echo": Refusal("the prompt is not given back; leave it out", (b"false",)),
    "suffix": Refusal("models here continue a text and fill no gaps; leave it out"),
}
HARMLESS = ("metadata", "safety_identifier", "prompt_cache_key")


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field was sent, with another value than null."""
    return bytes(raw) not in (b"", b"null")


def check_refused(body: object, refusals: dict[str, Refusal]) -> None:
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
