"""Samples of hidden states: taken, told, compared."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from diffuse_core.domain.spots import (
    GAP,
    TOLERANCE,
    TakenSpots,
    apart,
    compare,
    drawn_so,
    numbers,
    out_of_reach,
    widened,
)

WIDTH, SPOTS = 24, (3, 0, 23)


def rows(count: int, salt: int = 0) -> np.ndarray:
    return np.random.default_rng(salt).standard_normal((count, WIDTH)).astype(np.float32)


def test_numbers_of_fp32_rows_are_told_as_they_are() -> None:
    table = rows(5)
    taken = TakenSpots(SPOTS, WIDTH, 4)
    taken.take(0, 3, table[:3].tobytes())
    taken.take(3, 2, memoryview(table[3:].tobytes()))
    assert numbers(taken.tell(0, 9)) == tuple(table[:, SPOTS].ravel().tolist())
    assert numbers(taken.tell(2, 2)) == tuple(table[2:4, SPOTS].ravel().tolist())
    assert taken.tell(5, 1) == b""


def test_rows_that_come_again_replace_those_behind_them() -> None:
    table, again = rows(5), rows(2, 1)
    taken = TakenSpots(SPOTS, WIDTH, 4)
    taken.take(0, 5, table.tobytes())
    taken.take(3, 1, again[:1].tobytes())
    wanted = [*table[:3, SPOTS].ravel().tolist(), *again[0, list(SPOTS)].tolist()]
    assert list(numbers(taken.tell(0, 9))) == wanted


def test_bf16_is_the_upper_half_of_fp32() -> None:
    plain = [1.0, -2.5, 0.0, 3.0e38, 1e-30]
    halves = b"".join(struct.pack("<f", number)[2:] for number in plain)
    told = numbers(widened(halves, 2))
    assert told == pytest.approx(plain, rel=2**-7)


def test_without_spots_nothing_is_kept() -> None:
    taken = TakenSpots((), WIDTH, 4)
    taken.take(0, 2, rows(2).tobytes())
    assert taken.tell(0, 2) == b""


@pytest.mark.parametrize("contract", ["fp32", "bf16", "int8", "int4"])
def test_rows_agree_within_the_tolerance(contract: str) -> None:
    table = rows(50).ravel().tolist()
    noise = np.random.default_rng(1).standard_normal(len(table))
    limit = TOLERANCE[contract]
    near = [one + 0.3 * limit * off for one, off in zip(table, noise, strict=True)]
    far = [one + 3.0 * limit * off for one, off in zip(table, noise, strict=True)]
    assert compare(near, table, WIDTH, contract) == "agrees"
    assert compare(far, table, WIDTH, contract) == "differs"


def test_one_wrong_row_among_many_is_found() -> None:
    table = rows(500)
    wrong = table.copy()
    wrong[77] *= -1
    same = compare(wrong.ravel().tolist(), table.ravel().tolist(), WIDTH, "int4")
    assert same == "differs"


def test_of_rows_that_are_next_to_nothing_hardly_anything_is_asked() -> None:
    table = rows(50)
    table[3] *= 1e-6
    other = table.copy()
    other[3] *= -1
    same = compare(other.ravel().tolist(), table.ravel().tolist(), WIDTH, "fp32")
    assert same == "agrees"


@pytest.mark.parametrize(
    ("one", "other"),
    [((), ()), ((1.0,), (1.0, 2.0)), ((math.nan,), (1.0,)), ((1.0,), (math.inf,))],
)
def test_what_cannot_be_compared_differs(one: tuple[float, ...], other: tuple[float, ...]) -> None:
    assert compare(one, other, 1, "bf16") == "differs"


def test_tokens_nearly_as_likely_are_no_lies() -> None:
    gap = GAP["bf16"]
    assert drawn_so([0.0, gap, gap / 2], "bf16") == "agrees"
    assert drawn_so([0.0, gap * 1.01], "bf16") == "differs"
    for wrong in ([], [math.nan], [-1.0], [math.inf]):
        assert drawn_so(wrong, "bf16") == "differs"


def test_how_far_apart_rows_are_is_a_share_of_their_size() -> None:
    table = rows(50)
    assert apart((table * 1.5).ravel().tolist(), table.ravel().tolist(), WIDTH) == pytest.approx(
        0.5
    )
    assert apart([], [], WIDTH) is None
    assert apart([math.nan], [1.0], 1) is None
    assert apart([1.0], [1.0, 2.0], 1) is None


def test_the_token_that_was_farthest_out_of_reach_counts() -> None:
    assert out_of_reach([0.0, 0.4, 0.1]) == 0.4
    assert out_of_reach([]) is None
    assert out_of_reach([0.1, -0.1]) is None
    assert out_of_reach([math.inf]) is None
    assert out_of_reach([math.nan, 0.0]) is None
