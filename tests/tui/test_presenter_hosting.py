"""What is said about hosting, from literal figures."""

from __future__ import annotations

import json

import pytest
from tui_fakes import TELEMETRY, served

from diffuse_core.domain.machine import HostProgress
from diffuse_core.domain.slices import Slice
from diffuse_tui.presenter.fit import Fit, failure_lines, fit_lines, last_words, read_fit
from diffuse_tui.presenter.host_progress import Pace, Step, host_lines, step_of
from diffuse_tui.presenter.host_questions import (
    Idea,
    common_start,
    draining,
    idea_line,
    ideas,
    is_path,
    stopping,
)
from diffuse_tui.presenter.hosting import Choice, Status, hosts, leaves
from diffuse_tui.presenter.spans import plain

PLAN = {
    "model": "smol\x1b[31m",
    "slice": [0, 12],
    "reason": "fills the gap 0:12 of 30",
    "bytes": {"weights": 2**20, "kv_reserve": 2**20, "head": 0, "total": 2**21, "capacity": 2**30},
    "fingerprint": "ab",
    "contract": "bf16",
    "already_here": [3, 6],
    "changes": {"before": "Incomplete", "after": "Fragile", "text": "a -> b", "closes": [[0, 12]]},
    "more_memory": [{"extra_bytes": 1, "text": f"more {n}"} for n in range(3)],
    "more_hosts": {"covered": 0, "text": "1 more host"},
    "ranking": [{"id": "smol", "contract": "bf16", "reason": "it lacks most"}],
}


def told(**facts: object) -> object:
    return type(TELEMETRY)(
        **({name: getattr(TELEMETRY, name) for name in TELEMETRY.__struct_fields__} | facts)
    )


def text_of(lines: object) -> str:
    return "\n".join(plain(line) for line in lines)


def test_a_choice_becomes_options_that_no_text_of_it_can_leave() -> None:
    assert Choice("--help").plan_arguments() == (
        "--model=--help", "--dtype=auto", "--device=auto",
    )  # fmt: skip
    full = Choice("demo", "2GB", "int4", "cpu", "12", "3")
    assert full.host_arguments() == (
        "--model=demo", "--memory=2GB", "--max-layers=12", "--dtype=int4", "--device=cpu",
        "--threads=3",
    )  # fmt: skip


def test_a_plan_is_told_in_full_and_nothing_in_it_reaches_the_terminal_raw() -> None:
    fit = read_fit(json.dumps(PLAN).encode())
    assert isinstance(fit, Fit)
    text = text_of(fit_lines(fit, 100))
    for words in (
        "model       smol␛[31m · bf16", "would take  layers 0:12", "because     fills the gap",
        "weighs      2.0 MiB: layers 1.0 MiB + KV cache 1.0 MiB", "of          1.0 GiB that may",
        "changes     a → b", "holds 3:6 of it already", "more memory more 0", "more 1",
        "more hosts  1 more host", "auto        1. smol: it lacks most",
    ):  # fmt: skip
        assert words in text
    assert "more 2" not in text
    assert max(len(plain(line)) for line in fit_lines(fit, 40)) <= 40


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"model": 3}', b"\xff"])
def test_what_is_no_plan_is_none(text: bytes) -> None:
    assert read_fit(text) is None


def test_of_a_failed_command_its_reason_is_told() -> None:
    usage = "Usage: diffuse plan [OPTIONS]\nTry 'diffuse plan --help'.\n\nError: no such option\n"
    assert last_words(usage) == "no such option"
    log = "12:00:01 INFO    takes layers\ndiffuse: no memory\n12:00:02 WARNING late"
    assert last_words(log) == "no memory"
    assert last_words("Traceback\nValueError: odd\x1b") == "ValueError: odd␛"
    assert last_words("") == ""
    assert text_of(failure_lines("no memory", 40)) == " ✖ failed    no memory"


def test_a_step_is_read_from_figures_and_else_from_words() -> None:
    assert step_of(told(stage="loading 0:10, 12 %")) == Step("loading 0:10", 12)
    assert step_of(told(stage="loading 0:10, 12%")) == Step("loading 0:10", 12)
    assert step_of(told(stage="claiming a slice")) == Step("claiming a slice")
    progress = HostProgress("downloading", 0.5, Slice(0, 10), 60, 100)
    assert step_of(told(stage="downloading 0:10, 50%", progress=progress)) == Step(
        "downloading 0:10", 50, 60, 100
    )
    odd = HostProgress("reading", 7.0, None, 5, -1)
    assert step_of(told(stage="reading the model", progress=odd)) == Step(
        "reading the model", 100, 0, 0
    )


def test_a_rate_is_taken_over_the_last_pictures_of_one_phase() -> None:
    pace = Pace().then(10.0, "downloading", 0)
    assert pace.rate is None
    for second in range(1, 20):
        pace = pace.then(10.0 + second, "downloading", 3 * second)
    assert pace.rate == 3.0
    assert len(pace.seen) == 8
    assert pace.then(30.0, "loading", 100).rate is None
    # Neither a clock nor bytes that go back make a rate.
    assert pace.then(29.0, "downloading", 100).rate is None
    assert pace.then(40.0, "downloading", 0).rate is None


def test_while_nothing_is_read_yet_no_rate_is_told() -> None:
    loading = told(stage="loading 0:3", progress=HostProgress("loading", 0.0, Slice(0, 3), 0, 90))
    pace = Pace().then(10.0, "loading", 0).then(11.0, "loading", 0)
    assert "B/s" not in text_of(host_lines(loading, Status(), pace, 80))
    pace = pace.then(12.0, "loading", 45)
    assert "B/s" in text_of(host_lines(loading, Status(), pace, 80))


def test_a_host_is_told_from_its_start_to_its_end() -> None:
    assert host_lines(None, Status(), Pace(), 80) == ()
    assert host_lines(told(stage="holds no slice"), Status(), Pace(), 80) == ()
    ready = told(stage="ready", model="m\x07", slice=Slice(0, 1), kv_budget=2, sessions=1)
    text = text_of(host_lines(ready, Status(other=12), Pace(), 80))
    assert text.startswith(" ● Ready\n")
    assert "layers 0:1 · 1 layer" in text
    assert "m␇" in text
    assert "started by  not this app · process 12" in text
    again = text_of(host_lines(ready, Status(other=12, earlier=True), Pace(), 80))
    assert "started by  this app, before it was left · process 12" in again
    draining = host_lines(told(stage="finishing its sessions"), Status(mine=True), Pace(), 80)
    assert text_of(draining).startswith(" ▚ Draining · finishing its sessions")
    assert hosts(told(stage="starting"))
    assert not hosts(told(stage=""))
    assert leaves(told(stage="leaving: 1 session left"))
    assert not leaves(None)


def test_models_of_the_network_come_first_and_typing_narrows_them() -> None:
    assert [idea.value for idea in ideas(None, (), "")] == ["auto", "demo"]
    assert [idea.value for idea in ideas(served(), (), "")] == ["tiny-llama", "auto", "demo"]
    assert [idea.value for idea in ideas(served(), (), "TINY")] == ["tiny-llama"]
    # A name typed in full hides nothing.
    assert len(ideas(served(), (), "tiny-llama")) == 3
    paths = ("/m/a.gguf", "/m/dir/")
    assert ideas(served(), paths, "/m/") == (
        Idea("/m/a.gguf", "file"),
        Idea("/m/dir/", "directory"),
    )
    assert plain(idea_line(Idea("a\x1b", "file"))) == "a␛  file"
    assert len(ideas(None, tuple(f"/{n}" for n in range(500)), "/")) == 60


def test_a_path_is_completed_as_far_as_all_agree() -> None:
    assert common_start("/m", ("/models/a", "/models/b")) == "/models/"
    assert common_start("/models/", ("/models/a", "/models/b")) == "/models/"
    assert common_start("/m", ()) == "/m"
    assert [is_path(text) for text in ("demo", "org/name", "~x", "./a", "")] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_before_a_host_ends_the_sessions_are_named() -> None:
    assert draining(told(sessions=0)).startswith("No session runs here")
    assert draining(told(sessions=1)).startswith("1 session may finish, for 10 minutes")
    assert stopping(told(sessions=2)).startswith("2 sessions may finish within 6 seconds")
    assert stopping(told(sessions=2, stage="leaving: 2")).startswith("2 sessions cut short")
    assert stopping(told(sessions=0)).startswith("No session runs here")
