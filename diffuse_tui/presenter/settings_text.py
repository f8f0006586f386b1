"""Settings as text: what a field shows, and what typed text means or why it means nothing.

The bounds are those of the messages that carry the settings, so that nothing is accepted here
and refused later.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import NamedTuple

import msgspec
import msgspec.inspect

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.plain_text import clean, clean_line
from diffuse_core.domain.view import GenerateRequest
from diffuse_tui.presenter.parameters import Params

MAX_TEXT = 8_192
"""Characters of typed text that are looked at; all stop strings together are shorter."""


class Setting(NamedTuple):
    """One thing that can be set: its field in Params, its name for `/set`, and what to tell."""

    field: str
    name: str
    label: str
    hint: str


SETTINGS: tuple[Setting, ...] = (
    Setting("temperature", "temperature", "Temperature", "0: always the likeliest token"),
    Setting("top_k", "top-k", "Top-k", "only the k likeliest; 0: all"),
    Setting("top_p", "top-p", "Top-p", "the likeliest that sum to p; 1: all"),
    Setting("min_p", "min-p", "Min-p", "at least this share of the likeliest; 0: all"),
    Setting("repetition_penalty", "repetition-penalty", "Repetition", "1: none"),
    Setting("presence_penalty", "presence-penalty", "Presence", "0: none"),
    Setting("frequency_penalty", "frequency-penalty", "Frequency", "0: none"),
    Setting("seed", "seed", "Seed", "empty: a new one each time"),
    Setting("max_tokens", "max-tokens", "Max tokens", "of one answer"),
    Setting("stop", "stop", "Stop strings", 'END "two words" "\\n\\n"'),
    Setting("audit", "audit", "Audit", "the chance that a host is checked; 0: never"),
    Setting("speculate", "guess", "Guess ahead", "on or off; never changes the text"),
)
NAMES: tuple[str, ...] = tuple(setting.name for setting in SETTINGS)

_FIELDS = {setting.name: setting for setting in SETTINGS}
_SHORT = {"temp": "temperature", "speculate": "guess", "max": "max-tokens"}
_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))(?=\s|$)')
_ESCAPE = re.compile(r"\\(u(?!d[89a-f])[0-9a-f]{4}|.)", re.DOTALL | re.IGNORECASE)
_ESCAPED = {"n": "\n", "t": "\t"}
_ON = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_ANY_SEED = ("", "new", "none", "random")


def parse_setting(params: Params, name: str, text: str) -> Params | str:
    """`params` with the setting `name` as `text` has it, or a sentence that tells why not.

    Names are those of `NAMES`; `_` does for `-`, and a few short forms are known.
    """
    asked = name.strip().lower().replace("_", "-")
    setting = _FIELDS.get(_SHORT.get(asked, asked))
    if setting is None:
        return f"there is no setting {clean_line(name, 40)!r}; there are {', '.join(NAMES)}"
    if len(text) > MAX_TEXT:
        return f"{setting.name} is too long: at most {MAX_TEXT} characters"
    match setting.field:
        case "stop":
            return _with_stop(params, text)
        case "speculate":
            on = _ON.get(text.strip().lower())
            return "guess must be on or off" if on is None else _with(params, setting, on)
        case "seed" if text.strip().lower() in _ANY_SEED:
            return _with(params, setting, None)
        case _:
            pass
    return _with_number(params, setting, text.strip())


def setting_text(params: Params, name: str) -> str:
    """What `parse_setting` would read as the value that `params` has; "" for no seed."""
    value = getattr(params, _FIELDS[name].field)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(_quoted(each) for each in value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def range_text(name: str) -> str:
    """`0 to 100`, `above 0, up to 1`; "" for what is no number."""
    bounds = _bounds().get(_FIELDS[name].field)
    return bounds.span if bounds else ""


def changed_text(params: Params) -> str:
    """What is not as it is by default: `temperature 0.7 · top-p 0.95`; "" when all is."""
    usual = Params()
    return " · ".join(
        f"{setting.name} {setting_text(params, setting.name)}"
        for setting in SETTINGS
        if getattr(params, setting.field) != getattr(usual, setting.field)
    )


class _Bounds(NamedTuple):
    whole: bool
    least: float
    most: float
    above: bool

    @property
    def span(self) -> str:
        least, most = (str(each) if self.whole else f"{each:.16g}" for each in self[1:3])
        return f"above {least}, up to {most}" if self.above else f"{least} to {most}"

    @property
    def text(self) -> str:
        return f"a whole number, {self.span}" if self.whole else self.span

    def hold(self, value: float) -> bool:
        return (value > self.least if self.above else value >= self.least) and value <= self.most


def _kinds(struct: type[msgspec.Struct]) -> dict[str, msgspec.inspect.Type]:
    info = msgspec.inspect.type_info(struct)
    fields = info.fields if isinstance(info, msgspec.inspect.StructType) else ()
    return {field.name: field.type for field in fields}


@cache
def _bounds() -> dict[str, _Bounds]:
    found = {}
    for name, kind in (_kinds(SamplingParams) | _kinds(GenerateRequest)).items():
        if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            least = kind.ge if kind.gt is None else kind.gt
            if least is not None and kind.le is not None:
                whole = isinstance(kind, msgspec.inspect.IntType)
                found[name] = _Bounds(whole, least, kind.le, kind.gt is not None)
    return found


@cache
def _stop_bounds() -> tuple[int, int]:
    """How many stop strings there may be, and of how many characters each."""
    match _kinds(GenerateRequest)["stop"]:
        case msgspec.inspect.VarTupleType(
            max_length=int(most), item_type=msgspec.inspect.StrType(max_length=int(longest))
        ):
            return most, longest
        case _:
            return 0, 0


def _with(params: Params, setting: Setting, value: object) -> Params:
    return msgspec.structs.replace(params, **{setting.field: value})


def _with_number(params: Params, setting: Setting, text: str) -> Params | str:
    bounds = _bounds()[setting.field]
    try:
        value = int(text) if bounds.whole else float(text)
    except ValueError:
        value = math.nan
    # Not a number is in no range.
    if not bounds.hold(value):
        return f"{setting.name} must be {bounds.text}"
    return _with(params, setting, value)


def _with_stop(params: Params, text: str) -> Params | str:
    most, longest = _stop_bounds()
    found: list[str] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        word = _WORD.match(text, place)
        if word is None:
            return 'stop: a quotation mark is missing; write END "two words" "\\n\\n"'
        inner = word[2] if word[1] is None else word[1]
        found.append(_ESCAPE.sub(_meant, inner))
        place = word.end()
    if len(found) > most:
        return f"stop must be at most {most} strings"
    if any(not 1 <= len(each) <= longest for each in found):
        return f"stop: each string must have 1 to {longest} characters"
    return _with(params, _FIELDS["stop"], tuple(found))


def _meant(escape: re.Match[str]) -> str:
    """What an escape in typed text stands for."""
    named = escape[1]
    return chr(int(named[1:], 16)) if len(named) > 1 else _ESCAPED.get(named, named)


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    inner = inner.replace("\t", "\\t")
    # What a terminal would take for something else than text.
    inner = "".join(each if clean(each) == each else f"\\u{ord(each):04x}" for each in inner)
    return inner if inner and not re.search(r'[\s"]', inner) else f'"{inner}"'
