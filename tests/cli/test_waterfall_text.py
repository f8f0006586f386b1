from __future__ import annotations

from diffuse_core.cli.waterfall_text import token_timings, waterfall_lines
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import RouteStep, StageTiming

ROUTE = [
    RouteStep("a1b2c3d4" * 8, Slice(0, 15)),
    RouteStep("9ab03d11" * 8, Slice(15, 30), "relay"),
]


def measured(count: int) -> list[tuple[StageTiming, ...]]:
    one = (StageTiming(40.0, 0.02, 10.0), StageTiming(40.0, 0.0, 10.0))
    return [one] * count


def test_a_table_with_bars_that_follow_each_other() -> None:
    assert waterfall_lines(measured(64), ROUTE) == [
        "ms of a pass              wire         queue       compute",
        "stage               p50    p95    p50    p95    p50    p95 share",
        "a1b2c3d4 0:15      40.0   40.0   0.02   0.02   10.0   10.0   50%  ░░░░░░█",
        "9ab03d11 15:30     40.0   40.0   0.00   0.00   10.0   10.0   50%         ░░░░░░█",
        "63 passes; ░ wire ▒ queue █ compute",
    ]


def test_nothing_measured_is_nothing_told() -> None:
    assert waterfall_lines([], ROUTE) == []
    assert waterfall_lines(measured(3), ROUTE[:1]) == []
    assert waterfall_lines(measured(1), ROUTE)[-1].startswith("1 pass;")


def test_wild_figures_keep_to_80_columns_and_hostile_names_are_harmless() -> None:
    slow = StageTiming(599_999.0, 599_999.0, 599_999.0)
    route = [RouteStep("\x1b[2J\x07abc", Slice(1000, 1024))] * 64
    lines = waterfall_lines([(slow,) * 64], route)
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in "".join(lines)
    still = waterfall_lines([(StageTiming(0, 0, 0),)], ROUTE[:1])
    assert still[2].endswith("0%")


def test_rows_for_scripts() -> None:
    assert token_timings([*measured(1), ()], [3, 1]) == [
        {
            "tokens": 3,
            "stages": [
                {"wire_ms": 40.0, "queue_ms": 0.02, "compute_ms": 10.0},
                {"wire_ms": 40.0, "queue_ms": 0.0, "compute_ms": 10.0},
            ],
        },
        {"tokens": 1, "stages": []},
    ]
