from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tui_fakes import MODEL, network, node

from diffuse_tui.presenter.columns import Sort
from diffuse_tui.presenter.history import NodeHistory, Series
from diffuse_tui.presenter.node_detail import history_lines, node_lines
from diffuse_tui.presenter.replica_filter import node_filter
from diffuse_tui.presenter.replicas import (
    COLUMNS,
    counted_states,
    replica_cells,
    replica_order,
)
from diffuse_tui.presenter.spans import plain

if TYPE_CHECKING:
    from diffuse_core.domain.view import NodeView


def rows(*nodes: NodeView, sort: Sort | None = None) -> list[dict[str, str]]:
    view = network(*nodes)
    model = view.models[0] if view.models else None
    names = [column.name for column in COLUMNS]
    return [
        dict(zip(names, (span.text.strip() for span in replica_cells(one, model)), strict=True))
        for one in replica_order(view, model, sort)
    ]


def order(column: str, *nodes: NodeView, falling: bool = False) -> str:
    return "".join(row["node"][7] for row in rows(*nodes, sort=Sort(column, falling)))


NODES = (
    node(9, role="client"),
    node(8, role="sentinel", rtt_s=0.0004, relays=("f" * 64,)),
    node(7),
    node(2, (15, 30), sessions=2, kv_used=1, kv_budget=4, tokens_per_s=9.5, last_seen_s=70),
    node(1, (0, 15), me=True, addresses=("10.0.0.2:1",)),
    node(3, (15, 30), state="loading"),
    node(4, (0, 30), liveness="dead"),
    node(5, (0, 30), model="other"),
    node(6, (10, 15), quarantine="quarantined", version="0.2\x1b[2J"),
)


def test_rows_are_in_slice_order_and_say_what_is_known() -> None:
    shown = ("node", "slice", "state", "load", "tok/s", "trip", "seen", "met")
    assert [[row[name] for name in shown] for row in rows(*NODES)] == [
        ["00000001*", "0:15", "● ready", "—", "—", "local", "—", "direct"],
        ["00000006", "10:15", "⊘ quarantined", "—", "—", "—", "now", "unreachable"],
        ["00000002", "15:30", "● ready", "2 · 25 %", "9.5", "—", "1 min", "unreachable"],
        ["00000003", "15:30", "◔ loading", "—", "—", "—", "now", "unreachable"],
        ["00000004", "0:30", "✖ dead", "—", "—", "—", "now", "—"],
        ["00000005", "0:30", "● other", "—", "—", "—", "now", "unreachable"],
        ["00000007", "—", "· idle", "—", "—", "—", "now", "unreachable"],
        ["00000008", "—", "· sentinel", "—", "—", "0.4 ms⇄", "now", "relayed"],
        ["00000009", "—", "· client", "—", "—", "—", "now", "unreachable"],
    ]
    by_name = {row["node"]: row for row in rows(*NODES)}
    assert by_name["00000002"]["KV free"] == "3 B"
    assert by_name["00000006"]["version"] == "0.2␛[2J"
    assert rows(node(1))[0]["state"] == "· idle"
    assert rows(node(1, (0, 30), quarantine="doubtful", liveness="suspect"))[0]["state"] == (
        "⊖ doubtful"
    )
    assert rows(node(1, (0, 30), liveness="suspect"))[0]["state"] == "? suspect"
    assert counted_states(NODES) == "1 dead · 1 quarantined"


def test_a_row_fits_its_columns() -> None:
    for one in NODES:
        for column, cell in zip(COLUMNS, replica_cells(one, None), strict=True):
            assert len(cell.text) <= column.width, column.name


def test_any_order_keeps_what_is_unknown_last() -> None:
    assert order("slice", *NODES) == "145623789"
    assert order("slice", *NODES, falling=True).endswith("789")
    assert order("tok/s", *NODES)[0] == order("tok/s", *NODES, falling=True)[0] == "2"
    assert order("load", *NODES, falling=True)[0] == "2"
    assert order("KV free", *NODES)[0] == "2"
    assert order("node", *NODES) == "123456789"
    assert order("node", *NODES, falling=True) == "987654321"
    assert order("trip", *NODES)[:2] == "18"
    assert order("trip", *NODES, falling=True)[:2] == "81"
    assert order("seen", *NODES, falling=True)[0] == "2"
    assert order("version", *NODES, falling=True)[0] == "6"
    assert order("met", *NODES)[:2] == "18"
    assert order("state", *NODES)[:2] == "94"
    assert order("2 min", *NODES) == order("nonsense", *NODES) == "162345789"


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("", "162345789"),
        ("00000004", "4"),
        ("0000000", "162345789"),
        ("SENTINEL", "8"),
        ("ready", "16245"),
        ("ready 15:30", "245"),
        ("15:30 !other !dead", "23"),
        ("layer:12", "1645"),
        ("10:15", "1645"),
        ("10:1", "6"),
        ("30:10", ""),
        ("relayed", "8"),
        ("direct", "1"),
        ("quarantined", "6"),
        ("0.2", "6"),
        ("other", "5"),
        ("me", "1"),
        ("!me host", "623457"),
        (f"{MODEL} loading", "3"),
        ("!", ""),
        ("[/]", ""),
    ],
)
def test_all_words_of_a_filter_must_match(words: str, left: str) -> None:
    view = network(*NODES)
    shown = node_filter(words, view.models[0])
    nodes = replica_order(view, view.models[0])
    found = nodes if shown is None else [one for one in nodes if shown(one)]
    assert "".join(one.short[7] for one in found) == left


def test_a_sparkline_stands_beside_what_was_busy_lately() -> None:
    busy = replica_cells(NODES[3], None, Series((0.0, 2.0, 4.0) * 40, 119))
    assert len(busy[5].text) == COLUMNS[5].width
    assert set(busy[5].text) <= set("▁▂▃▄▅▆▇█")
    assert replica_cells(NODES[3], None, Series((0.0,) * 120))[5].text == ""


def test_graphs_stand_side_by_side_where_there_is_room() -> None:
    one = node(2, (0, 30), tokens_per_s=8.0, kv_used=2, kv_budget=4, sessions=1)
    history = NodeHistory()
    history.note(network(one))
    wide = [plain(line) for line in history_lines(one, history, 80, 9)][1:]
    assert len(wide) == 2 * 4
    assert {len(line) for line in wide} == {80}
    assert wide[0].split() == ["tokens/s", "8.0", "top", "8.0", "sessions", "1", "top", "1"]
    assert wide[1].rstrip().endswith("█")
    assert wide[4].split() == ["KV", "used", "2", "B", "top", "4", "B", "round", "trip", "—"]
    assert wide[5].rstrip() == ""
    assert [wide[row][38] for row in (6, 7)] == ["▄", "█"], "KV is drawn against its budget"
    narrow = [plain(line) for line in history_lines(one, history, 40, 5)]
    assert len(narrow) == 1 + 4 * (1 + 2), "never too low to be read"
    assert len(history_lines(one, history, 80, 99)) == 1 + 2 * (1 + 8)
    mine = node(2, me=True)
    assert "round trip" not in "".join(plain(x) for x in history_lines(mine, history, 40, 9))


def test_a_node_in_full() -> None:
    def facts(shown: NodeView) -> dict[str, str]:
        return {line[0].text.strip(): line[1].text for line in node_lines(shown)}

    busy = facts(
        node(
            2,
            (15, 30),
            addresses=("10.0.0.2:9440", "a\x1b[2J:1"),
            capacity=3 * 2**30,
            kv_used=1,
            kv_budget=4,
            sessions=1,
            rtt_s=0.25,
            tokens_per_s=9.5,
            last_seen_s=70,
        )
    )
    assert busy == {
        "id": "00000002" + "0" * 56,
        "role": "host · alive",
        "state": "● other",
        "weights": "ab" * 32,
        "version": "0.1.0",
        "address": "10.0.0.2:9440, a␛[2J:1",
        "holds": f"layers 15:30 of {MODEL} · fp32 · ready",
        "capacity": "3.0 GiB",
        "KV": "1 B of 4 B (25 %) · 1 session",
        "speed": "9.5 tokens/s",
        "trip": "250 ms",
        "seen": "1 min ago",
    }
    unmeasured = facts(node(2, (15, 30), distance_s=0.031))
    assert unmeasured["trip"] == "about 31 ms, by its place on the network"
    bare = facts(node(1, me=True, role="client"))
    assert bare["role"] == "client · this node · alive"
    assert bare["holds"] == "no slice"
    assert bare["capacity"] == bare["KV"] == "—"
    assert "trip" not in bare
    many = facts(node(1, addresses=tuple(f"h:{n}" for n in range(20))))
    assert many["address"].endswith("h:7, and 12 more")
    relayed = facts(node(1, addresses=(), relays=("1a2b3c4d" + "0" * 56, "\x1b" + "f" * 63)))
    assert relayed["address"] == "— (cannot be dialled)"
    assert relayed["relayed"] == "via sentinel 1a2b3c4d, ␛fffffff"
    near = facts(node(1, addresses=("10.0.0.2:1",), relays=("1a2b3c4d" + "0" * 56,)))
    assert near["address"] == "10.0.0.2:1"
    assert near["relayed"] == "via sentinel 1a2b3c4d"
    assert "relayed" not in busy
    accused = facts(node(1, (0, 15), quarantine="quarantined"))
    assert accused["audits"].startswith("quarantined: an audit found")
    assert facts(node(1))["address"] == "— (takes no connections)"
