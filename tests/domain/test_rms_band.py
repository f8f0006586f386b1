"""The band for the size of hidden states: what it lets pass, and what it does not."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.rms_band import ENOUGH_ROWS, MOST_SENDERS, Learned, RmsBand
from diffuse_core.errors import Refused

HONEST, OTHER, THIRD, LIAR = b"a" * 32, b"b" * 32, b"c" * 32, b"l" * 32
SINK = 1042.0
"""Of the first row after layer 12 of SmolLM2-135M; the others lie between 4 and 9."""


def rows(count: int, salt: int = 1, low: float = 4.1, high: float = 8.9) -> list[float]:
    rng = random.Random(salt)
    return [rng.uniform(low, high) for _ in range(count)]


def begun(learned: Learned | None = None, node: bytes = HONEST, count: int = 64) -> RmsBand:
    """A Session of which a prompt came."""
    band = RmsBand(Learned() if learned is None else learned)
    band.check(node, 0, [SINK, *rows(count - 1)])
    return band


def refuses(band: RmsBand, at: int, rms: float) -> bool:
    """Whether the band does not take a row."""
    try:
        band.check(HONEST, at, [rms])
    except Refused as error:
        return "the stage before is at fault" in str(error)
    return False


def taught(*nodes: bytes) -> Learned:
    learned = Learned()
    for node in nodes:
        begun(learned, node, ENOUGH_ROWS + 1)
    return learned


def test_rows_like_those_before_pass_and_learning_goes_on() -> None:
    band = begun()
    for at, rms in enumerate(rows(200, 2), 64):
        band.check(HONEST, at, [rms])


@pytest.mark.parametrize("factor", [16.0, 1 / 16.0])
def test_rows_that_are_16_times_too_large_or_small_are_found_within_a_few(factor: float) -> None:
    band = begun()
    wrong = [rms * factor for rms in rows(8, 3)]
    assert any(refuses(band, 64 + at, rms) for at, rms in enumerate(wrong))


@pytest.mark.parametrize("rms", [0.0, 1e-12, 1e12])
@pytest.mark.parametrize("position", [0, 64])
def test_what_no_model_gives_is_refused_wherever_it_comes(rms: float, position: int) -> None:
    band = begun()
    with pytest.raises(Refused):
        band.check(HONEST, position, [rms])


def test_one_exploded_number_is_found_unless_it_makes_the_row_look_like_a_sink() -> None:
    width = 576
    with pytest.raises(Refused):
        begun().check(HONEST, 64, [1e6 / width**0.5])
    begun().check(HONEST, 64, [3e4 / width**0.5])


def test_a_prompt_of_one_token_again_and_again_may_be_followed_by_text() -> None:
    band = RmsBand(Learned())
    band.check(HONEST, 0, [SINK * (1 + 0.01 * (at % 3)) for at in range(300)])
    for at, rms in enumerate(rows(64), 300):
        band.check(HONEST, at, [rms])
    band.check(HONEST, 364, [SINK])
    with pytest.raises(Refused):
        band.check(HONEST, 365, [SINK / 10])


@pytest.mark.parametrize("sinks", [(725.0,), (194.0,), (600.0, 300.0, 450.0)])
def test_a_prompt_may_begin_with_several_sinks(sinks: tuple[float, ...]) -> None:
    """As "stone door way" does with SmolLM2-135M, and two of a hundred lists of words."""
    band = RmsBand(Learned())
    band.check(HONEST, 0, [SINK, *sinks, *rows(40)])
    # What came then is known as the body, and as strict as ever.
    assert refuses(band, 41 + len(sinks), 4.1 / 17)
    assert refuses(band, 41 + len(sinks), 1e6)


def test_a_refused_piece_teaches_nothing_and_may_come_again() -> None:
    band = begun()
    with pytest.raises(Refused):
        band.check(HONEST, 64, [6.0, 6.0 * 16])
    with pytest.raises(Refused):
        band.check(HONEST, 64, [6.0, 6.0 * 16])
    band.check(HONEST, 64, [6.0, 7.0])


def test_what_two_nodes_give_at_one_place_is_the_models_doing() -> None:
    band = begun()
    with pytest.raises(Refused):
        band.check(HONEST, 64, [96.0])
    band.check(OTHER, 64, [97.0])


def test_another_lie_of_another_node_is_still_refused() -> None:
    band = begun()
    with pytest.raises(Refused):
        band.check(HONEST, 64, [96.0])
    with pytest.raises(Refused):
        band.check(OTHER, 64, [0.01])


def test_a_session_that_is_wrong_from_its_first_row_on_is_known_by_two_others() -> None:
    learned = taught(HONEST, OTHER)
    with pytest.raises(Refused, match="never have"):
        RmsBand(learned).check(LIAR, 0, [SINK * 16])
    with pytest.raises(Refused):
        RmsBand(learned).check(LIAR, 0, [SINK / 1000])
    RmsBand(learned).check(LIAR, 0, [SINK, *rows(10)])


def test_one_other_is_not_enough_to_speak_against_a_node() -> None:
    RmsBand(taught(HONEST)).check(OTHER, 0, [SINK * 16])


def test_a_liar_makes_neither_room_for_itself_nor_others_look_wrong() -> None:
    learned = taught(HONEST, OTHER)
    wrong = RmsBand(learned)
    # In a Session of its own it begins as others do, and goes as far as it can.
    wrong.check(LIAR, 0, [SINK, *rows(ENOUGH_ROWS + 1), 60.0])
    for factor in (16.0, 1 / 16.0):
        with pytest.raises(Refused):
            RmsBand(learned).check(LIAR, 0, [SINK * factor])
    RmsBand(learned).check(THIRD, 0, [SINK, *rows(10)])
    RmsBand(learned).check(HONEST, 0, [SINK, *rows(10)])


def test_two_that_agree_widen_the_band_of_a_session_that_knows_better() -> None:
    learned = taught(HONEST, OTHER)
    band = RmsBand(learned)
    band.check(THIRD, 0, [SINK * 1.1] * 32)
    # Like the rows that others gave, though this Session has none of the kind.
    band.check(THIRD, 32, [5.0])


def test_only_so_many_senders_are_remembered() -> None:
    learned = Learned()
    for at in range(3 * MOST_SENDERS):
        begun(learned, at.to_bytes(32, "big"), 3)
    assert len(learned._senders) == MOST_SENDERS


def test_slow_drift_ends_somewhere() -> None:
    band = begun()
    assert any(refuses(band, 64 + at, 6.0 * 0.7**at) for at in range(60))


def test_rows_that_come_again_from_the_beginning_begin_the_session_anew() -> None:
    band = begun()
    band.check(OTHER, 0, [SINK / 2, *rows(20, 5)])


def test_without_a_first_row_nothing_is_known_against_a_row() -> None:
    RmsBand(Learned()).check(HONEST, 5, [1.0, 3.0])


@given(
    st.lists(st.floats(2.0, 15.0), min_size=1, max_size=80),
    st.sampled_from([1.0, 3.0, 30.0, 250.0, 1000.0]),
)
def test_honest_rows_of_any_order_pass(body: list[float], sink: float) -> None:
    band = RmsBand(Learned())
    band.check(HONEST, 0, [6.0 * sink])
    for at, rms in enumerate(body, 1):
        band.check(HONEST, at, [rms])


def test_a_row_costs_microseconds() -> None:
    band = begun()
    began = time.perf_counter()
    for at in range(1000):
        band.check(HONEST, 64 + at, [6.0])
    assert time.perf_counter() - began < 0.03


def test_two_strangers_cannot_speak_against_who_was_there_before() -> None:
    learned = taught(HONEST)
    for node in (OTHER, THIRD):
        band = RmsBand(learned)
        band.check(node, 0, [1e6, *rows(ENOUGH_ROWS + 1, low=1e5, high=2e5)])
    begun(learned)
    with pytest.raises(Refused):
        RmsBand(learned).check(HONEST, 0, [SINK * 16])


def test_a_crowd_of_strangers_does_not_make_one_forget_who_gave_much() -> None:
    learned = taught(HONEST)
    for at in range(3 * MOST_SENDERS):
        begun(learned, at.to_bytes(32, "big"), 3)
    assert learned.of(HONEST).rows == ENOUGH_ROWS + 1
