from __future__ import annotations

import pytest
from tui_fakes import MODEL, network, node

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Event, NodeView
from diffuse_tui.presenter import figures
from diffuse_tui.presenter.events import event_line, wrapped_event
from diffuse_tui.presenter.node_detail import node_lines
from diffuse_tui.presenter.replicas import COLUMNS, replica_rows
from diffuse_tui.presenter.spans import Span, merged, plain


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


def rows(*nodes: NodeView) -> list[list[str]]:
    view = network(*nodes)
    model = view.models[0] if view.models else None
    return [[span.text.strip() for span in row.cells] for row in replica_rows(view, model)]


def test_rows_are_in_slice_order_and_say_what_is_known() -> None:
    table = rows(
        node(9, role="client"),
        node(8, role="sentinel", rtt_s=0.0004, relays=("f" * 64,)),
        node(7),
        node(2, (15, 30), sessions=2, kv_used=1, kv_budget=4, tokens_per_s=9.5, last_seen_s=70),
        node(1, (0, 15), me=True, addresses=("10.0.0.2:1",)),
        node(3, (15, 30), state="loading"),
        node(4, (0, 30), liveness="dead"),
        node(5, (0, 30), model="other"),
    )
    assert table == [
        ["00000001*", "0:15", "● ready", "—", "—", "local", "—", "direct"],
        ["00000002", "15:30", "● ready", "2 · 25 %", "9.5", "—", "1 min", "unreachable"],
        ["00000003", "15:30", "◔ loading", "—", "—", "—", "now", "unreachable"],
        ["00000004", "0:30", "✖ dead", "—", "—", "—", "now", "—"],
        ["00000005", "0:30", "● other", "—", "—", "—", "now", "unreachable"],
        ["00000007", "—", "· idle", "—", "—", "—", "now", "unreachable"],
        ["00000008", "—", "· sentinel", "—", "—", "0.4 ms⇄", "now", "relayed"],
        ["00000009", "—", "· client", "—", "—", "—", "now", "unreachable"],
    ]
    assert {len(row) for row in table} == {len(COLUMNS)}


def test_rows_without_a_model() -> None:
    assert rows(node(1))[0][2] == "· idle"


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
    assert relayed["address"] == "via sentinel 1a2b3c4d, via sentinel ␛fffffff"
    near = facts(node(1, addresses=("10.0.0.2:1",), relays=("1a2b3c4d" + "0" * 56,)))
    assert near["address"] == "10.0.0.2:1, via sentinel 1a2b3c4d"


def test_events_have_time_shape_and_words_kept_whole() -> None:
    text = plain(event_line(Event(0.0, "warning", "a\x1bb")))
    assert text.endswith(" ▲ a␛b")
    assert text[3] == ":"
    assert plain(event_line(Event(1e300, "info", "x"))) == " --:--:-- · x"
    lines = wrapped_event(Event(0.0, "error", "one two three four"), 22)
    assert [plain(line)[12:] for line in lines] == ["one two", "three four"]
    assert len(wrapped_event(Event(0.0, "info", ""), 5)) == 1
