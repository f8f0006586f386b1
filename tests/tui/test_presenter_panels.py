from __future__ import annotations

import pytest

from diffuse_tui.presenter import figures
from diffuse_tui.presenter.spans import Span, merged


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "0 B"),
        (512, "512 B"),
        (1023, "1.0 KiB"),
        (46 * 2**20, "46 MiB"),
        (2**60, "1024 PiB"),
    ],
)
def test_sizes(value: float, text: str) -> None:
    assert figures.size_text(value) == text


def test_other_figures() -> None:
    assert figures.rate_text(2048) == "2.0 KiB/s"
    assert [figures.speed_text(v) for v in (0, 0.04, 31.44, 1e3)] == ["—", "—", "31.4", "1000"]
    assert [figures.duration_text(v) for v in (-3, 59, 60, 185, 7800, 90_000, 86400)] == [
        "0 s",
        "59 s",
        "1 min",
        "3 min 5 s",
        "2 h 10 min",
        "1 d 1 h",
        "1 d",
    ]
    assert [figures.age_text(v) for v in (0, 5, 61, 7200, 90_000)] == [
        "now",
        "5 s",
        "1 min",
        "2 h",
        "1 d",
    ]
    assert [figures.round_trip_text(v) for v in (None, 0.0003, 0.25)] == ["—", "0.3 ms", "250 ms"]
    assert [figures.percent(*v) for v in ((1, 0), (1, 3), (9, 3))] == [0, 33, 100]
    assert figures.bar(50, 4) == ("━━", "──")
    assert figures.counted(1, "host") == "1 host"
    assert figures.counted(2, "entry", "entries") == "2 entries"


def test_neighbours_of_one_tone_are_joined() -> None:
    spans = [Span("a"), Span("b"), Span("", "bad"), Span("c", "bad"), Span("d", "bad")]
    assert merged(spans) == (Span("ab"), Span("cd", "bad"))
