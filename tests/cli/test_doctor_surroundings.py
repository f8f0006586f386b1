"""What doctor makes of disk, ports, the terminal and clocks; and how it finds those facts."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from diffuse_core.adapters.checkup.places import PlaceFacts, files_below, place_facts
from diffuse_core.adapters.checkup.ports import PortFacts, port_facts
from diffuse_core.adapters.checkup.screen import ScreenFacts
from diffuse_core.adapters.checkup.time_sync import synchronised
from diffuse_core.cli.doctor.checks import look_at_place
from diffuse_core.cli.doctor.clocks import judge_against, judge_sync
from diffuse_core.cli.doctor.surroundings import (
    judge_default_ports,
    judge_listen,
    judge_place,
    judge_screen,
    judge_serve,
)
from diffuse_core.domain.identity import NodeId
from tests.cli.test_doctor_machine import told

PLACE = PlaceFacts(Path("/d"), exists=True, free=2**30, inodes=0.5, filesystem="ext4")
SCREEN = ScreenFacts(
    "xterm", "utf-8", (120, 40), no_color=False, true_color=True, tmux=False, remote=False
)
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("facts", "state", "word"),
    [
        (PLACE, "ok", "1.0 GiB free"),
        (replace(PLACE, exists=False), "ok", "not made yet"),
        (replace(PLACE, problem="no space left", full=True, free=0), "problem", "make room"),
        (replace(PLACE, problem="permission denied"), "problem", "the right to write"),
        (replace(PLACE, inodes=0.001), "warning", "df -i"),
        (replace(PLACE, inodes=None), "ok", ""),
        (replace(PLACE, free=1000), "warning", "make room"),
        (replace(PLACE, filesystem="tmpfs"), "note", "memory"),
        (replace(PLACE, filesystem="nfs4"), "warning", "another machine"),
    ],
)
def test_a_directory(facts: PlaceFacts, state: str, word: str) -> None:
    told(judge_place("state directory", "--state-dir", facts, 2**20), state, word)


def test_a_directory_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    facts = place_facts(tmp_path)
    assert facts.exists
    assert not facts.problem
    assert facts.free > 0
    assert not list(tmp_path.iterdir())
    absent = place_facts(tmp_path / "a" / "b")
    assert (absent.exists, absent.problem) == (False, "")
    assert not (tmp_path / "a").exists()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NotADirectoryError):
        place_facts(tmp_path / "a" / "b")
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        told(
            look_at_place("state directory", path), "problem", f"{tmp_path / 'a'} is no directory"
        )


def test_what_is_below_is_looked_at_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.part").write_bytes(b"12")
    (tmp_path / "y.gguf").write_bytes(b"1")
    assert files_below(tmp_path, (".part",)) == [(tmp_path / "deep" / "x.part", 2)]
    assert files_below(tmp_path / "none", (".part",)) == []


FREE = PortFacts("127.0.0.1", 9440)
TAKEN = replace(FREE, problem="in use", taken=True, holder="nginx", pid=77)


def test_where_a_node_is_to_listen() -> None:
    told(judge_listen(FREE, None), "ok", "free")
    told(judge_listen(TAKEN, None), "problem", "nginx (pid 77)")
    told(judge_listen(TAKEN, 77), "ok", "node that runs here")
    told(judge_listen(replace(TAKEN, pid=None), None), "problem", "ss -ltnp")
    far = replace(FREE, problem="cannot assign requested address")
    told(judge_listen(far, None), "problem", "cannot assign")


def test_where_a_node_listens_by_itself() -> None:
    told(judge_default_ports([FREE], None), "ok", "9440 is free")
    told(judge_default_ports([TAKEN], 77), "ok", "port 9440")
    told(judge_default_ports([TAKEN, replace(FREE, port=9441)], None), "note", "takes 9441")
    told(judge_default_ports([TAKEN, replace(TAKEN, port=9441)], None), "problem", "none of")


def test_where_programs_are_served() -> None:
    told(judge_serve(FREE, named=False), "ok")
    told(judge_serve(TAKEN, named=False), "note", "--port")
    told(judge_serve(TAKEN, named=True), "problem", "kill 77")


def test_a_port_that_is_taken_is_told_with_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        facts = port_facts("127.0.0.1", port)
        assert facts.taken
        assert facts.pid in (None, os.getpid())
    assert not port_facts("127.0.0.1", port).problem
    assert "no address" in port_facts("no.such.host.invalid", port).problem


@pytest.mark.parametrize(
    ("facts", "state", "word"),
    [
        (SCREEN, "ok", "true colour"),
        (replace(SCREEN, encoding="ascii"), "warning", "LC_ALL"),
        (replace(SCREEN, term="dumb"), "warning", "diffuse chat"),
        (replace(SCREEN, term="dumb", size=None), "ok", "no terminal"),
        (replace(SCREEN, size=(79, 24)), "note", "80x24"),
        (replace(SCREEN, size=(80, 24), tmux=True), "ok", "tmux"),
    ],
)
def test_the_terminal(facts: ScreenFacts, state: str, word: str) -> None:
    told(judge_screen(facts), state, word)


def test_what_the_kernel_says_of_the_clock() -> None:
    told(judge_sync(True), "ok")
    told(judge_sync(False), "note", "set-ntp")
    told(judge_sync(None), "note")
    assert synchronised() in (True, False, None)


@pytest.mark.parametrize(
    ("ahead", "state", "word"),
    [
        ([], "note", "nothing is compared"),
        ([0.2, -0.3, 0.1], "ok", "3 nodes"),
        ([30.0], "note", "30 s behind that of 1 node"),
        ([-7200.0, -7201.0, -7199.0], "warning", "2.0 h ahead of"),
        ([7300.0, 7300.0, 7300.0, 0.0], "warning", "the network copes"),
        ([0.0, 0.0, 9e9], "ok", "3 nodes"),
    ],
)
def test_the_clock_against_others(ahead: list[float], state: str, word: str) -> None:
    clocks = {NodeId(bytes([at]) * 32): seconds for at, seconds in enumerate(ahead)}
    told(judge_against(clocks, NOW), state, word)
