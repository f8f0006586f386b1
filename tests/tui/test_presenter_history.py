from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from tui_fakes import network, node

from diffuse_tui.presenter.history import SAMPLES, NodeHistory
from diffuse_tui.presenter.sparkline import binned, block_rows, highest, sparkline

if TYPE_CHECKING:
    from diffuse_core.domain.view import NetworkView

NAN = math.nan
ONE = node(1).node


def at(seconds: float, *nodes: object) -> NetworkView:
    return msgspec.structs.replace(network(*nodes), taken_at=seconds)


def known(history: NodeHistory, figure: str = "speed", key: str = ONE) -> list[float]:
    values = history.series(key, figure).values
    return [round(value, 3) for value in values if math.isfinite(value)]


def test_a_sparkline_is_as_wide_as_asked_and_scaled_to_its_largest_value() -> None:
    assert sparkline([0, 1, 2, 4, 8], 5) == "▁▁▂▄█"
    assert sparkline([1, 2], 4, span=4) == "  ▄█"
    assert sparkline([], 3) == "   "
    assert sparkline([1, NAN, math.inf, 1], 4) == "█  █"
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline([1, 1], 2, top=8) == "▁▁"
    assert sparkline([90, 1], 2, top=8) == "█▁"
    assert sparkline([1], 0) == ""
    assert highest([NAN]) == 0.0


def test_a_tall_graph_stacks_eighths() -> None:
    assert block_rows([1, 8, 16], 3, 2) == ("  █", "▁██")
    assert block_rows([NAN, 4], 2, 2, top=16) == ("  ", " ▄")


def test_groups_keep_their_members_while_newer_values_come() -> None:
    values = [float(n) for n in range(100)]
    width, span = 4, 12
    before = binned(values[:12], width, span=span, phase=11)
    after = binned(values[1:13], width, span=span, phase=12)
    assert before == [1.0, 4.0, 7.0, 10.0]
    assert after == [4.0, 7.0, 10.0, 12.0]
    assert math.isnan(binned([1.0], 2, span=4, phase=1)[0])


def test_samples_go_where_the_time_of_their_view_says() -> None:
    history = NodeHistory()
    assert history.series(ONE, "speed") == ((), 0)
    history.note(at(100.2, node(1, tokens_per_s=1.0, sessions=2, kv_used=512, rtt_s=0.25)))
    history.note(at(100.9, node(1, tokens_per_s=2.0)))
    assert known(history) == [2.0]
    assert known(history, "rtt") == []
    history.note(at(101.0, node(1, tokens_per_s=3.0, rtt_s=0.5)))
    assert known(history) == [2.0, 3.0]
    assert known(history, "rtt") == [0.5]
    history.note(at(103.1, node(1, tokens_per_s=4.0)))
    assert known(history) == [2.0, 3.0, 3.0, 4.0], "a late view is bridged"
    history.note(at(110.0, node(1, tokens_per_s=5.0)))
    values = history.series(ONE, "speed").values
    assert len(values) == SAMPLES
    assert values[-1] == 5.0
    assert all(math.isnan(value) for value in values[-7:-1]), "silence is a gap"


@pytest.mark.parametrize("jump", [-5.0, 500.0, 1e300])
def test_a_clock_that_jumps_starts_anew(jump: float) -> None:
    history = NodeHistory()
    for second in range(5):
        history.note(at(1000.0 + second, node(1, tokens_per_s=7.0)))
    history.note(at(1000.0 + jump, node(1, tokens_per_s=9.0)))
    assert known(history) == [9.0]


def test_a_ring_keeps_two_minutes() -> None:
    history = NodeHistory()
    for second in range(SAMPLES + 30):
        history.note(at(float(second), node(1, tokens_per_s=float(second), kv_used=10**12)))
    assert known(history)[0] == 30.0
    assert known(history)[-1] == SAMPLES + 29
    assert history.series(ONE, "speed").phase == SAMPLES + 29
    assert known(history, "kv")[-1] == pytest.approx(10**12, rel=1e-6)


def test_nodes_that_vanish_are_forgotten_and_no_flood_is_kept() -> None:
    history = NodeHistory(most=2)
    history.note(at(1.0, node(1), node(2), node(3)))
    assert len(history) == 2
    history.note(at(2.0, node(3), node(1), node(2)))
    assert history.series(node(3).node, "speed").values == (), "those that were there stay"
    history.note(at(3.0, node(3, tokens_per_s=1.0), node(1)))
    assert len(history) == 2
    assert known(history, key=node(3).node) == [1.0]
    assert history.series(node(2).node, "speed").values == ()


def test_hostile_figures_are_gaps() -> None:
    history = NodeHistory()
    history.note(at(NAN, node(1, tokens_per_s=1e300)))
    history.note(at(1.0, node(1, tokens_per_s=math.inf)))
    assert known(history) == []
