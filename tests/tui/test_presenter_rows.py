from __future__ import annotations

from time import process_time

import msgspec
import pytest
from tui_fakes import model, node

from diffuse_tui.presenter.coverage_map import holder_line, map_frame, ruler
from diffuse_tui.presenter.coverage_rows import grouped, holder_rows, layer_text
from diffuse_tui.presenter.spans import plain

MANY = (
    *(node(n, (0, 10)) for n in range(1, 35)),
    node(40, (0, 10), me=True),
    node(41, (0, 10), state="loading"),
    node(42, (0, 10), liveness="suspect"),
    *(node(n, (10, 30)) for n in range(50, 53)),
    node(60, (10, 30), liveness="dead"),
    node(61, (10, 30), fingerprint="cd" * 32),
)


def test_equal_holders_share_a_row_but_for_this_node() -> None:
    shown = model(MANY)
    rows = holder_rows(shown, MANY)
    assert len(rows) == 40
    joined = grouped(rows)
    assert [(row.name, str(row.part), row.state) for row in joined] == [
        ("00000028", "0:10", "ready"),
        ("×34", "0:10", "ready"),
        ("0000002a", "0:10", "suspect"),
        ("00000029", "0:10", "loading"),
        ("×3", "10:30", "ready"),
    ]
    assert joined[0].me
    frame = map_frame(shown, joined, 72)
    texts = [plain(holder_line(frame, index)) for index in range(5)]
    assert texts[1].startswith(" ×34")
    assert texts[1].split()[-2:] == ["0:10", "ready"]
    assert texts[0].startswith("*00000028  E███")


def test_one_group_unfolds_where_it_is() -> None:
    rows = holder_rows(model(MANY), MANY)
    threes = grouped(rows)[-1].key
    opened = grouped(rows, frozenset({threes}))
    assert [row.name for row in opened[-4:]] == ["▾×3", "00000032", "00000033", "00000034"]
    assert [row.inner for row in opened[-4:]] == [False, True, True, True]
    assert opened[-4].key == threes
    assert len({row.key for row in opened}) == len(opened)


def test_the_cursors_are_marks_and_cut_no_number() -> None:
    nodes = (node(1, (0, 12)), node(2, (12, 30)))
    shown = model(nodes)
    frame = map_frame(shown, holder_rows(shown, nodes), 61)
    assert plain(holder_line(frame, 0, cursor=True)).startswith(" 00000001 ▸E█")
    assert "12" in plain(ruler(frame, 5))
    for layer in range(30):
        line = plain(ruler(frame, layer))
        assert line[frame.place(layer)] == "▼"
        assert frame.layer_at(frame.place(layer)) == layer
        assert set(line.replace("▼", " ").split()) <= {"layers", "0", "12", "30"}
    assert frame.layer_at(3) is None


@pytest.mark.parametrize("layers", [30, 200, 1024])
def test_every_layer_has_its_place_in_few_cells(layers: int) -> None:
    shown = model((node(1, (0, layers)),), layers)
    frame = map_frame(shown, (), 50)
    for layer in range(layers):
        start, end = frame.spans[frame.place(layer) - 12]
        assert start <= layer < end


def test_a_layer_tells_its_holders_and_what_is_weak() -> None:
    nodes = (
        node(1, (0, 20)),
        node(2, (0, 20)),
        node(3, (10, 20)),
        node(4, (10, 30), state="loading"),
    )
    shown = model(nodes)
    rows = holder_rows(shown, nodes)
    shown = msgspec.structs.replace(shown, weakest=shown.missing[0])
    assert layer_text(shown, rows, 14, 200) == (
        " layer 14: 3 holders (00000001, 00000002, 00000003) · 1 loading · weakest 20:30: x0"
    )
    assert layer_text(shown, rows, 14, 70) == (
        " layer 14: 3 holders (00000001, ...) · 1 loading · weakest 20:30: x0"
    )
    assert layer_text(shown, rows, 25, 70) == (
        " layer 25: held by nobody · 1 loading · weakest 20:30: x0"
    )
    assert layer_text(shown, rows, 14, 30) == " layer 14: 3 holders · 1 load…"
    robust = model(nodes, target_replicas=1, weakest=None)
    assert layer_text(robust, rows, 3, 80) == " layer 3: 2 holders (00000001, 00000002)"


def test_a_thousand_holders_of_200_layers_are_laid_out_in_no_time() -> None:
    nodes = tuple(node(n, (n * 7 % 190, n * 7 % 190 + 10)) for n in range(1000))
    shown = model(nodes, 200)

    def seconds() -> float:
        began = process_time()
        frame = map_frame(shown, grouped(holder_rows(shown, nodes)), 100)
        assert len([holder_line(frame, index) for index in range(40)]) == 40
        return process_time() - began

    assert min(seconds() for _ in range(3)) < 0.05
