from __future__ import annotations

import math
from typing import Any

import msgspec
from tui_fakes import MODEL, TELEMETRY, network, node

from diffuse_core.domain.machine import GpuFigures, HostProgress, Temperature
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import RelayFigures, Telemetry
from diffuse_tui.presenter.history import BRIDGED
from diffuse_tui.presenter.machine import met_text
from diffuse_tui.presenter.machine_history import RATE_SAMPLES, SAMPLES, MachineHistory
from diffuse_tui.presenter.machine_lines import machine_lines
from diffuse_tui.presenter.spans import Line, plain

GIB = 2**30
NEW = MachineHistory()


def figures(**more: Any) -> Telemetry:
    return msgspec.structs.replace(TELEMETRY, **more)


def drawn(
    telemetry: Telemetry | None, width: int = 60, rows: int = 6, history: MachineHistory = NEW
) -> list[str]:
    return [plain(line).rstrip() for line in machine_lines(telemetry, history, width, rows)]


BUSY = figures(
    cpu_percent=99.0,
    model=MODEL,
    slice=Slice(0, 10),
    stage="ready",
    weight_bytes=2**20,
    kv_used=9,
    kv_budget=10,
    sessions=1,
    tokens_per_s=3.0,
    bytes_in_per_s=10.0,
)


def test_this_machine() -> None:
    assert drawn(None) == [" no figures from this machine yet"]
    assert drawn(TELEMETRY) == [
        " CPU     ━─────────── 10 % of 2 cores",
        " memory  ━━━━━━────── 4.0 GiB of 8.0 GiB",
        " holds   no slice",
        " KV      —",
        " traffic ↓ 0 B/s  ↑ 0 B/s  — tok/s",
        " device  cpu · node 256 MiB · up 1 min 15 s",
    ]
    lines = drawn(BUSY, 30)
    assert lines[0] == " CPU     ━━━━━━ 99 % of 2 cores"
    assert lines[2] == f" holds   0:10 of {MODEL} · 1.0 MiB · ready"
    assert lines[3] == " KV      ━━━━━─ 9 B of 10 B · 1 session"
    assert lines[4].split() == ["traffic", "↓", "10", "B/s", "↑", "0", "B/s", "3.0", "tok/s"]
    assert [machine_lines(BUSY, NEW, 30, 6)[n][1].tone for n in (0, 3)] == ["bad", "warning"]
    assert drawn(figures(stage="loading 40 %"))[2] == " holds   loading 40 %"
    assert drawn(figures(stage="holds no slice"))[2] == " holds   no slice"
    assert drawn(figures(slice=Slice(0, 1)))[2] == " holds   0:1 of"


def labels(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]


EVERYTHING = msgspec.structs.replace(
    BUSY,
    gpus=(GpuFigures("NVIDIA H200", 140 * GIB, 70 * GIB, 63.4, 41.0),),
    temperatures=(Temperature("CPU", 55.2), Temperature("disk", 41.0)),
    disk_free=80 * GIB,
    reason="fills the gap 0:10",
)


def test_the_most_important_comes_first() -> None:
    assert labels(drawn(BUSY, rows=4)) == ["CPU", "memory", "holds", "traffic"]
    assert labels(drawn(EVERYTHING, rows=3)) == ["CPU", "memory", "holds"]
    assert labels(drawn(EVERYTHING, rows=6)) == ["CPU", "memory", "GPU", "holds", "KV", "traffic"]
    every = drawn(EVERYTHING, 120, 12)
    assert every[2] == " GPU     ━━━━━━━━──── 63 % · 70 GiB of 140 GiB · 41 °C · NVIDIA H200"
    assert every[7:] == [
        " °C      CPU 55 · disk 41",
        " disk    80 GiB free for models",
        " why     fills the gap 0:10",
    ]
    # What is not well comes before what is.
    low = msgspec.structs.replace(
        EVERYTHING, disk_free=GIB, loop_lag_p99_s=0.4, loop_lag_max_s=2.0
    )
    assert labels(drawn(low, rows=6)) == ["CPU", "memory", "GPU", "holds", "delay", "disk"]
    told = " ".join(drawn(low, 120, 12))
    assert "▲ only 1.0 GiB free for models" in told
    assert "▲ the node answers 0.4 s late, 2.0 s at most, in the last minute" in told


def test_many_gpus_and_ones_that_tell_little() -> None:
    bare = GpuFigures("AMD GPU", 8 * GIB, 2 * GIB)
    (only,) = [line for line in drawn(figures(gpus=(bare,)), 80, 12) if "GPU" in line]
    assert only == " GPU     ━━━───────── 2.0 GiB of 8.0 GiB · AMD GPU"
    two = drawn(figures(gpus=(bare, bare)), 80, 12)
    assert [line.split()[1] for line in two if line.startswith(" GPU")] == ["0", "1"]
    # A second one gives way to everything else.
    assert labels(drawn(figures(gpus=(bare, bare)), rows=6)).count("GPU") == 1


def test_a_sentinel_tells_what_it_relays() -> None:
    relay = RelayFigures(reservations=3, circuits=1, bytes_relayed=5 * 2**20)
    lines = drawn(figures(relay=relay), rows=4)
    assert lines[3] == " relays  3 nodes · 1 circuit · 5.0 MiB passed on"


def getting(done: int, phase: str = "downloading") -> Telemetry:
    part = Slice(12, 18)
    progress = HostProgress(phase, done / GIB, part, done, GIB)
    return figures(model=MODEL, slice=part, stage="downloading 12:18", progress=progress)


def test_what_is_fetched_with_its_speed_and_what_is_left() -> None:
    history = MachineHistory()
    assert history.speed() is None
    history.note(100.0, figures(progress=HostProgress("reading", 0.5)))
    assert history.speed() is None
    assert drawn(figures(progress=HostProgress("reading", 0.5)))[0] == (
        " reads   ━━━━━━────── 50 %"
    )
    for second in range(2 * RATE_SAMPLES):
        history.note(101.0 + second, getting(second * 2**24))
    now = getting((2 * RATE_SAMPLES - 1) * 2**24)
    assert history.speed() == 2**24
    assert drawn(now, 80, 6, history)[0] == (
        " fetches ━━━━──────── 30 % · 304 MiB of 1.0 GiB · 16 MiB/s · 45 s left"
    )
    assert " takes   12:18 of tiny-llama" in drawn(now, 80, 6, history)
    assert machine_lines(now, history, 80, 6)[0][1].tone == "accent"
    # Loading is another thing, and has no speed before its second sample.
    history.note(130.0, getting(0, "loading"))
    assert history.speed() is None
    assert drawn(getting(0, "loading"), 80, 6, history)[0].endswith("0 % · 0 B of 1.0 GiB")
    history.note(131.0, getting(0, "loading"))
    assert history.speed() == 0
    assert drawn(getting(0, "loading"), 80, 6, history)[0].endswith("0 % · 0 B of 1.0 GiB")


def filled(count: int = 130) -> MachineHistory:
    history = MachineHistory()
    for second in range(count):
        wave = 50 + 50 * math.sin(second / 9)
        history.note(1000.0 + second, msgspec.structs.replace(EVERYTHING, cpu_percent=wave))
    return history


def test_what_it_was_before_stands_beside_it() -> None:
    history = filled()
    wide, narrow = drawn(BUSY, 80, 6, history), drawn(BUSY, 58, 6, history)
    cpu, memory = wide[0], wide[1]
    assert len(cpu) == len(memory) == 79
    assert len(set(cpu[53:])) > 4
    # The speed of a series that does not change is a line.
    assert set(memory[53:]) == {"▄"}
    assert len(narrow[0]) < 53
    assert all(len(line) <= 80 for line in wide)


def test_larger_graphs_where_there_is_room() -> None:
    history = filled()
    rows = 20
    lines = machine_lines(EVERYTHING, history, 80, rows)
    assert len(lines) <= rows
    text = [plain(line) for line in lines]
    heading = next(number for number, line in enumerate(text) if line.startswith(" CPU 9"))
    assert not text[heading - 1]
    assert "most 100 % in 5 min" in text[heading]
    assert " memory 50 %" in text[heading]
    assert "█" in text[heading + 1]
    assert all(len(line) <= 80 for line in text)
    # One beside the other needs some width; too few rows have none.
    tall = [plain(line) for line in machine_lines(EVERYTHING, history, 40, 60)]
    assert sum("in 5 min" in line for line in tall) == 6
    assert len(drawn(EVERYTHING, 80, 11, history)) == 10
    # A few words less make room for them.
    some = drawn(EVERYTHING, 80, 12, history)
    assert len(some) == 12
    assert "in 5 min" in some[9]
    assert not any("for models" in line for line in some)
    # Nothing is drawn that was never measured.
    plain_box = MachineHistory()
    plain_box.note(0.0, TELEMETRY)
    assert not any("GPU" in line for line in drawn(TELEMETRY, 80, 40, plain_box))
    assert drawn(TELEMETRY, 80, 40)[6:] == []


def test_the_history_is_bounded_and_knows_gaps() -> None:
    history = MachineHistory()
    for second in range(SAMPLES + 50):
        history.note(float(second), TELEMETRY)
    assert len(history) == SAMPLES
    assert history.series("cpu").phase == SAMPLES + 49
    history.note(math.nan, TELEMETRY)
    assert len(history) == 1
    # A second picture of one moment replaces the first.
    history.note(0.9, figures(cpu_percent=70.0))
    assert history.series("cpu").values == (70.0,)
    # A short gap is bridged, a longer one shows; so does a time without figures.
    history.note(1.0 + BRIDGED, None)
    values = history.series("cpu").values
    assert values[:-1] == (70.0,) * (1 + BRIDGED)
    assert math.isnan(values[-1])
    history.note(50.0, TELEMETRY)
    assert len(history) == 51
    assert [math.isnan(value) for value in history.series("cpu").values[-3:]] == [
        True,
        True,
        False,
    ]
    history.note(1e9, TELEMETRY)
    assert history.series("cpu").values == (10.0,)
    assert math.isnan(history.series("gpu").values[0])
    assert math.isnan(history.series("kv").values[0])


def test_this_machine_says_through_whom_it_is_met() -> None:
    relays = ("1a2b3c4d" + "0" * 56, "\x1b" + "f" * 63)
    told = met_text(network(node(2), node(1, me=True, relays=relays)))
    assert told == "relayed by sentinel 1a2b3c4d, ␛fffffff"
    assert met_text(network(node(1, me=True, addresses=("10.0.0.2:1",)), node(2))) == ""
    assert met_text(network(node(1, me=True))) == "no sentinel relays for it now"
    assert met_text(network(node(1))) == ""


def test_no_word_of_a_stranger_moves_the_cursor() -> None:
    wild = figures(
        model="\x1b[2J[bold]" + "x" * 99,
        slice=Slice(0, 1),
        stage="\x07ready",
        device="\x1b]0;",
        reason="\x1b[31m",
        gpus=(GpuFigures("\x1b[5m", GIB, 0),),
        temperatures=(Temperature("\x1b", 5.0),),
    )
    lines: tuple[Line, ...] = machine_lines(wild, NEW, 80, 20)
    assert not any(ord(char) < 32 for line in lines for char in plain(line))
