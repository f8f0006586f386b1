"""`status` speaks of the event loop only when it is late, and of a relay only where one is."""

from __future__ import annotations

from msgspec.structs import replace

from diffuse_core.cli.look import _late, _relays
from diffuse_core.domain.view import RelayFigures
from tests.tui.tui_fakes import TELEMETRY


def test_a_loop_in_time_is_not_worth_a_word() -> None:
    assert _late(replace(TELEMETRY, loop_lag_p99_s=0.049, loop_lag_max_s=3.0)) == ""


def test_a_late_loop_is_told_in_milliseconds() -> None:
    said = _late(replace(TELEMETRY, loop_lag_p99_s=0.0804, loop_lag_max_s=1.25))
    assert "late by 80 ms" in said
    assert "1250 ms at most" in said


def test_a_sentinel_tells_what_it_relays() -> None:
    assert _relays(TELEMETRY) == ""
    said = _relays(replace(TELEMETRY, relay=RelayFigures(3, 2, 5 * 2**20)))
    assert said == ", relays: 3 reservations, 2 circuits, 5.0 MiB so far"
