from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import GenerateRequest
from diffuse_tui.presenter.parameters import (
    PRESETS,
    Params,
    preset_of,
    to_sampling,
    with_preset,
)
from diffuse_tui.presenter.settings_text import (
    NAMES,
    SETTINGS,
    changed_text,
    parse_setting,
    range_text,
    setting_text,
)


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("temperature", " 0.7 ", "temperature", 0.7),
        ("temp", "1", "temperature", 1.0),
        ("TOP_K", "40", "top_k", 40),
        ("top-p", "1", "top_p", 1.0),
        ("presence-penalty", "-2", "presence_penalty", -2.0),
        ("seed", "12", "seed", 12),
        ("seed", "", "seed", None),
        ("seed", "new", "seed", None),
        ("max-tokens", "1048576", "max_tokens", 2**20),
        ("guess", "off", "speculate", False),
        ("stop", 'END "two words" "\\n\\"\\\\"', "stop", ("END", "two words", '\n"\\')),
        ("stop", "\\n a\\tb", "stop", ("\n", "a\tb")),
        ("stop", "  ", "stop", ()),
        ("stop", r"\u001B[ \ud800 \u00e", "stop", ("\x1b[", "ud800", "u00e")),
    ],
)
def test_what_is_typed_is_set(name: str, text: str, field: str, value: object) -> None:
    before = Params(seed=5, stop=("x",))
    after = parse_setting(before, name, text)
    assert after == msgspec.structs.replace(before, **{field: value})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("temperature", "hot", "temperature must be 0 to 100"),
        ("temperature", "nan", "temperature must be 0 to 100"),
        ("temperature", "", "temperature must be 0 to 100"),
        ("top-p", "0", "top-p must be above 0, up to 1"),
        ("top-k", "1.5", "top-k must be a whole number, 0 to 16777216"),
        ("max-tokens", "0", "max-tokens must be a whole number, 1 to 1048576"),
        ("seed", str(2**63), f"seed must be a whole number, 0 to {2**63 - 1}"),
        ("guess", "maybe", "guess must be on or off"),
        ("stop", '"a', "a quotation mark is missing"),
        ("stop", 'a"b', "a quotation mark is missing"),
        ("stop", "a " * 17, "stop must be at most 16 strings"),
        ("stop", '""', "each string must have 1 to 256 characters"),
        ("stop", "x" * 257, "each string must have 1 to 256 characters"),
        ("stop", "x" * 10_000, "stop is too long"),
        ("warmth\x1b", "1", "there is no setting 'warmth␛'; there are temperature, top-k"),
    ],
)
def test_what_cannot_be_set_is_told_with_its_range(name: str, text: str, told: str) -> None:
    answer = parse_setting(Params(), name, text)
    assert isinstance(answer, str)
    assert told in answer


def test_every_setting_is_there_and_comes_back_as_it_was_written() -> None:
    assert {setting.field for setting in SETTINGS} == set(Params.__struct_fields__)
    params = Params(
        temperature=0.1 + 0.2,
        top_k=3,
        seed=9,
        stop=("a b", '"', "\\", "\n\t", "c", "\x1b[2J", "\u202e"),
        speculate=False,
    )
    again = Params()
    for name in NAMES:
        changed = parse_setting(again, name, setting_text(params, name))
        assert isinstance(changed, Params)
        again = changed
    assert again == msgspec.structs.replace(params, temperature=0.3)
    assert setting_text(Params(), "seed") == ""
    assert range_text("repetition-penalty") == "0.01 to 100"
    assert range_text("stop") == ""


def test_what_differs_from_the_defaults_is_told() -> None:
    assert changed_text(Params()) == ""
    assert changed_text(Params(temperature=0.7, speculate=False)) == "temperature 0.7 · guess off"


def test_presets_choose_tokens_and_leave_the_rest() -> None:
    mine = Params(temperature=2.0, seed=3, max_tokens=9, stop=("x",), speculate=False)
    for name, preset in PRESETS.items():
        after = with_preset(mine, name)
        assert preset_of(after) == name
        assert after.temperature == preset.temperature
        assert (after.seed, after.max_tokens, after.stop, after.speculate) == (3, 9, ("x",), False)
    assert preset_of(mine) is None


@given(st.sampled_from(NAMES), st.text(max_size=40))
def test_whatever_is_accepted_can_be_sent(name: str, text: str) -> None:
    params = parse_setting(Params(), name, text)
    if isinstance(params, Params):
        sampling = to_sampling(params, 7)
        request = GenerateRequest(
            model="m", sampling=sampling, stop=params.stop, max_tokens=params.max_tokens
        )
        packed = msgspec.msgpack.encode(request)
        assert msgspec.msgpack.decode(packed, type=GenerateRequest) == request


def test_a_seed_of_ones_own_counts() -> None:
    assert to_sampling(Params(), 7) == SamplingParams(seed=7)
    assert to_sampling(Params(seed=1, top_k=2), 7) == SamplingParams(seed=1, top_k=2)
