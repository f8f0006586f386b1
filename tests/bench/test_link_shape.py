"""When bytes arrive: by a clock that the test moves."""

from __future__ import annotations

import pytest

from tests.bench.link_shape import MIN_TIMEOUT_S, SEGMENT, Line, Shape


def arrivals(shape: Shape, seed: str = "1", count: int = 200, apart: float = 0.01) -> list[float]:
    line = Line(seed)
    return [line.arrival(apart * number, 100, shape) for number in range(count)]


def test_a_free_link_takes_no_time() -> None:
    assert arrivals(Shape(), count=3) == [0.0, 0.01, 0.02]


def test_a_delay_moves_all_by_as_much() -> None:
    assert arrivals(Shape(delay_s=0.5), count=3) == pytest.approx([0.5, 0.51, 0.52])


def test_bytes_leave_one_after_the_other() -> None:
    line, shape = Line("1"), Shape(delay_s=1.0, bytes_per_s=100.0)
    assert line.arrival(0.0, 50, shape) == pytest.approx(1.5)
    assert line.arrival(0.0, 50, shape) == pytest.approx(2.0)
    # The link was idle since.
    assert line.arrival(9.0, 50, shape) == pytest.approx(10.5)


def test_jitter_varies_the_delay_and_keeps_the_order() -> None:
    found = arrivals(Shape(delay_s=0.1, jitter_s=0.05), apart=0.001)
    assert found == sorted(found)
    late = [arrival - 0.001 * number for number, arrival in enumerate(found)]
    assert min(late) >= 0.1
    assert max(late) <= 0.15
    assert max(late) - min(late) > 0.02


def test_a_lost_segment_keeps_back_what_follows_for_a_timeout() -> None:
    shape = Shape(delay_s=0.05, loss=0.05)
    found = arrivals(shape)
    late = [arrival - 0.01 * number for number, arrival in enumerate(found)]
    timeout = MIN_TIMEOUT_S + 2 * shape.delay_s
    assert found == sorted(found)
    stalled = [at for at, one in enumerate(late) if one >= shape.delay_s + timeout - 1e-9]
    assert len(stalled) >= 3
    # What was sent after a lost one comes together with it.
    assert found[stalled[0] + 1] == found[stalled[0]]
    assert sum(one == pytest.approx(shape.delay_s) for one in late) > 20


def test_more_segments_lose_more() -> None:
    shape, long = Shape(loss=0.02), 40 * SEGMENT
    lines = [Line(str(number)) for number in range(300)]
    short = sum(line.arrival(0.0, 1, shape) > 0 for line in lines)
    lines = [Line(str(number)) for number in range(300)]
    assert sum(line.arrival(0.0, long, shape) > 0 for line in lines) > 10 * max(1, short)


def test_a_seed_gives_the_same_again_and_another_does_not() -> None:
    shape = Shape(delay_s=0.1, jitter_s=0.05, loss=0.05)
    assert arrivals(shape) == arrivals(shape) != arrivals(shape, "2")


def test_nothing_leaves_before_the_handshake() -> None:
    line = Line("1")
    line.hold_until(3.0)
    assert line.arrival(1.0, 10, Shape(delay_s=0.5)) == pytest.approx(3.5)
