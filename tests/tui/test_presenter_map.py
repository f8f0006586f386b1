from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tui_fakes import model, node

from diffuse_tui.presenter.coverage_map import (
    GAP,
    LABEL,
    counts_line,
    gap_lines,
    holder_line,
    legend,
    map_frame,
    ruler,
)
from diffuse_tui.presenter.coverage_rows import holder_rows
from diffuse_tui.presenter.spans import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import NodeView
    from diffuse_tui.presenter.coverage_map import MapFrame


def laid_out(nodes: Sequence[NodeView], layers: int, width: int) -> MapFrame:
    shown = model(nodes, layers)
    return map_frame(shown, holder_rows(shown, nodes), width)


def drawn(*nodes: NodeView, width: int = 72, layers: int = 30) -> list[str]:
    frame = laid_out(nodes, layers, width)
    rows = [plain(holder_line(frame, i)) for i in range(len(frame.rows))]
    below = [plain(counts_line(frame)), *(plain(line) for line in gap_lines(frame))]
    return [plain(ruler(frame)), *rows, *below]


def test_a_gap_cannot_be_overlooked() -> None:
    lines = drawn(node(1, (0, 10), me=True), node(2, (20, 30)), width=61)
    head, first, second, counts, words = lines
    assert head.split() == ["layers", "0", "10", "20", "30"]
    assert first.startswith("*00000001  E██████████")
    assert first.rstrip().endswith("0:10    ready")
    assert GAP * 10 in first
    assert GAP * 10 in second
    assert "H 20:30" in second
    assert "!! gap !!!" in counts
    assert words == " ! gap: layers 10:20 of 30 are held by no live node"


def test_ruler_rows_and_counts_share_their_columns() -> None:
    head, first, second, counts = drawn(node(1, (0, 12)), node(2, (12, 30)), width=61)
    at = head.index("12")
    assert first[at - 1] == "█"
    assert first[at] == "┊"
    assert second[at - 1] == " "
    assert second[at] == "█"
    assert counts[LABEL] == "├"
    assert counts.rstrip().endswith("┤")
    assert " 1 " in counts


def test_states_differ_in_shape() -> None:
    nodes = [
        node(n, (0, 30), state=state)
        for n, state in enumerate(["ready", "loading", "claiming", "leaving"], 1)
    ]
    nodes.append(node(5, (0, 30), liveness="suspect"))
    nodes.append(node(6, (0, 30), liveness="dead"))
    lines = drawn(*nodes)
    shapes = [line[LABEL] for line in lines[1:6]]
    assert shapes == ["█", "?", "▒", "┄", "▚"]
    assert [line.split()[-1] for line in lines[1:6]] == [
        "ready",
        "suspect",
        "loading",
        "claiming",
        "leaving",
    ]
    assert not any("00000006" in line for line in lines)


@pytest.mark.parametrize("width", [20, 36, 40, 47, 60, 72, 140])
@pytest.mark.parametrize("layers", [1, 2, 30, 126, 1024])
def test_every_line_fits_every_width(width: int, layers: int) -> None:
    end = max(1, layers // 3)
    nodes = (node(1, (0, end)), node(2, (layers - 1, layers)))
    frame = laid_out(nodes, layers, width)
    lines = [ruler(frame), counts_line(frame), *(holder_line(frame, i) for i in range(2))]
    assert {len(plain(line)) <= max(width, LABEL + 9) + 4 for line in lines} == {True}


@pytest.mark.parametrize("layers", [126, 130, 200])
def test_the_ruler_shows_whole_numbers_only(layers: int) -> None:
    for width in range(31, 160, 4):
        for last in range(layers - 9, layers):
            cuts = (0, 70, last, layers)
            nodes = [node(n, part) for n, part in enumerate(pairwise(cuts), 1)]
            frame = laid_out(nodes, layers, width)
            seen = plain(ruler(frame)).split()[1:]
            assert {int(number) for number in seen} <= frame.cuts
            assert seen[-1] == str(layers)


def test_more_layers_than_cells_shows_the_worst_of_each_cell() -> None:
    nodes = (node(1, (0, 60)), node(2, (61, 126)))
    frame = laid_out(nodes, 126, 52)
    assert frame.area < 126
    assert "!" in plain(counts_line(frame))
    assert GAP in plain(holder_line(frame, 0))


def test_crowded_counts_are_joined_and_boundaries_become_steps() -> None:
    nodes = tuple(node(n, (n, n + 20)) for n in range(40))
    frame = laid_out(nodes, 60, 60)
    text = plain(counts_line(frame))
    assert "2..20" in text
    assert len(plain(ruler(frame)).split()) < 12


def test_narrow_runs_show_what_fits() -> None:
    nodes = [node(1, (0, 30))] + [node(n, (10, 11)) for n in range(2, 14)]
    assert "+" in drawn(*nodes, width=45)[-1]
    two = [node(1, (0, 30)), node(2, (3, 5))]
    assert "2┤" in drawn(*two, width=43)[-1]


def test_many_gaps_are_summed_up() -> None:
    nodes = [node(n, (n * 6, n * 6 + 1)) for n in range(5)]
    lines = drawn(*nodes)
    assert lines[-1] == " ! and 3 more gaps"
    assert len([line for line in lines if line.startswith(" ! ")]) == 3


def test_the_legend_shrinks() -> None:
    assert legend(90).endswith("? suspect  ░ gap  E embedding  H head")
    assert legend(75).endswith("leaving  ░ gap  E embedding  H head")
    assert legend(62).endswith("? suspect  ░ gap")
    assert legend(52).endswith("leaving  ░ gap")
    assert len(legend(30)) < len(legend(60))
