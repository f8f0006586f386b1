"""`diffuse stop` and `diffuse drain`: they end the node running here, or say why not."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from diffuse_core import node_end
from diffuse_core.adapters.file_storage import FileStorage, StateLock, load_identity
from diffuse_core.cli import look, run
from diffuse_core.domain.owner_messages import StopNode
from diffuse_core.running import NodeOptions, run_node
from diffuse_core.services import attachment, links
from diffuse_core.services.feed import FeedService
from diffuse_core.settings import NODE_FILE, PUBLIC, running_node
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Said = tuple[int, str, str]
# The package has a command of that name, which hides the module.
stop = importlib.import_module("diffuse_core.cli.stop")
BOTH = pytest.mark.parametrize("command", ["stop", "drain"])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], state: Path) -> Callable[..., Said]:
    """Run a command; its exit code, stdout and stderr."""

    def command(*arguments: str) -> Said:
        try:
            code = run([*arguments, "--state-dir", str(state)])
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@contextmanager
def node(state: Path) -> Iterator[None]:
    """A node in a thread of this process: it ends when asked, the process does not."""
    up, loops = threading.Event(), []

    async def main() -> None:
        stopped = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stopped))
        options = NodeOptions(
            state=state, role="client", listen=("127.0.0.1", 0), started=lambda *_: None
        )
        task = asyncio.create_task(run_node(options, stopped))
        await until(lambda: running_node(state) is not None or task.done())
        up.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    up.wait(10)
    try:
        yield
    finally:
        loop, stopped = loops[0]
        with suppress(RuntimeError):  # Its loop may have ended by itself just now.
            loop.call_soon_threadsafe(stopped.set)
        thread.join(10)


@BOTH
def test_without_a_node_there_is_nothing_to_end(say: Callable, state: Path, command: str) -> None:
    code, out, err = say(command)
    assert (code, out) == (5, "")
    assert f"no node runs with the state directory {state}" in err
    assert "--state-dir DIR" in err
    assert not state.exists()


@BOTH
def test_a_node_that_left_its_file_behind_is_not_there(
    say: Callable, state: Path, command: str
) -> None:
    """Another process may have its number by now."""
    owner = load_identity(state, "owner.key")
    left = {"address": "127.0.0.1:9", "node": owner.node.hex(), "pid": os.getpid()}
    FileStorage(state).write(NODE_FILE, json.dumps(left).encode())
    code, _, err = say(command)
    assert code == 5
    assert "127.0.0.1:9" in err
    (state / "owner.key").unlink()
    assert say(command)[0] == 5
    assert not (state / "owner.key").exists()


@BOTH
def test_another_owner_is_refused_in_words(say: Callable, state: Path, command: str) -> None:
    with node(state):
        (state / "owner.key").unlink()
        code, out, err = say(command)
        assert (code, out) == (6, "")
        assert "only this node's owner may ask that" in err
        assert "put that back" in err
        assert say("status")[0] == 6
        assert running_node(state) is not None


def test_a_node_that_does_not_go_is_told(
    say: Callable, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is the node's, and stays."""
    monkeypatch.setattr(node_end, "GONE_S", 0.5)
    with node(state):
        code, out, err = say("stop", "--now")
    assert (code, out) == (6, "")
    assert f"the node (pid {os.getpid()}) did not end within 0 s" in err
    assert f"kill {os.getpid()}" in err


@pytest.mark.parametrize(
    ("arguments", "patience"),
    [
        (["stop"], None),
        (["stop", "--now"], 0.0),
        (["drain"], 600.0),
        (["drain", "--timeout", "86400"], 86400.0),
    ],
)
def test_what_the_node_is_asked(
    say: Callable,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    patience: float | None,
) -> None:
    asked: list[float | None] = []

    def ask(given: float | None) -> StopNode:
        asked.append(given)
        return StopNode(given)

    async def gone(_process: object) -> None:
        return

    monkeypatch.setattr(attachment, "StopNode", ask)
    monkeypatch.setattr(node_end, "gone", gone)
    with node(state):
        mine = running_node(state)
        code, out, err = say(*arguments, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["node"], told["pid"], told["cut"]) == (mine.node, os.getpid(), 0)
    assert told["sessions"] == 0
    assert told["seconds"] < 5
    assert asked == [patience]


@pytest.mark.parametrize("seconds", ["0", "-1", "86401", "1.5", "nan", "soon"])
def test_times_out_of_range_are_refused(say: Callable, seconds: str) -> None:
    code, _, err = say("drain", "--timeout", seconds)
    assert code == 2
    assert "--timeout" in err


@BOTH
def test_other_machines_cannot_be_named(say: Callable, command: str) -> None:
    code, _, err = say(command, "--bootstrap", "192.0.2.1:9440")
    assert code == 2
    assert "No such option" in err


@BOTH
def test_help_has_examples_and_exit_codes(say: Callable, command: str) -> None:
    code, out, _ = say(command, "--help")
    assert code == 0
    assert f"diffuse {command} --state-dir" in out
    assert "Exit codes" in out


@pytest.mark.parametrize(("count", "text"), [(1, "1 session"), (2, "2 sessions")])
def test_counts_are_words(count: int, text: str) -> None:
    assert stop._count(count) == text
    assert stop._cut_text(count, None) == f"; {text} did not finish in time"
    assert stop._cut_text(0, None) == stop._cut_text(0, 0.0) == ""


def test_who_does_not_wait_is_not_told_of_time() -> None:
    assert stop._cut_text(1, 0.0) == "; 1 session was ended"
    assert stop._cut_text(2, 0.0) == "; 2 sessions were ended"


@pytest.mark.parametrize(
    ("patience", "state", "told"),
    [
        (600.0, None, "the node goes on draining; to end it at once: diffuse stop --now"),
        (
            600.0,
            "my state",
            "the node goes on draining; to end it at once: "
            "diffuse stop --now --state-dir 'my state'",
        ),
        (None, None, "the node ends all the same; to end it at once: diffuse stop --now"),
        (0.0, None, "the node ends all the same"),
    ],
)
def test_an_interruption_is_told_with_the_command_for_this_node(
    monkeypatch: pytest.MonkeyPatch, patience: float | None, state: str | None, told: str
) -> None:
    monkeypatch.delenv("DIFFUSE_STATE_DIR", raising=False)
    assert stop._goes_on({"state_dir": state, "network": PUBLIC}, patience) == told


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no locks or SIGSTOP here")
@pytest.mark.parametrize("command", ["stop", "drain", "status"])
def test_a_node_that_is_silent_is_told_by_its_process(
    say: Callable, state: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A port that takes connections and says nothing, and a process that holds the lock."""
    monkeypatch.setattr(links, "DIAL_TIMEOUT_S", 0.2)
    owner = load_identity(state, "owner.key")
    with socket.create_server(("127.0.0.1", 0)) as mute, StateLock(state):
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        here = {"address": address, "node": owner.node.hex(), "pid": os.getpid()}
        FileStorage(state).write(NODE_FILE, json.dumps(here).encode())
        code, out, err = say(command)
    assert (code, out) == (5, "")
    assert f"does not answer: process {os.getpid()}, {address}" in err
    assert f"`kill {os.getpid()}`" in err
    assert "firewall" not in err


def test_no_other_process_is_to_be_ended(
    say: Callable, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a node that died may be that of another process by now."""
    monkeypatch.setattr(links, "DIAL_TIMEOUT_S", 0.2)
    owner = load_identity(state, "owner.key")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        left = {"address": address, "node": owner.node.hex(), "pid": os.getpid()}
        FileStorage(state).write(NODE_FILE, json.dumps(left).encode())
        code, _, err = say("stop")
    assert code == 5
    assert "kill" not in err


@BOTH
def test_a_node_that_hears_and_says_nothing_is_told(
    say: Callable, state: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    async def nothing(*_: object) -> None:
        return

    monkeypatch.setattr(FeedService, "_stream", nothing)
    monkeypatch.setattr(stop, "ANSWER_S", 0.2)
    monkeypatch.setattr(look, "FEED_S", 0.2)
    with node(state):
        for one in (command, "status"):
            code, out, err = say(one)
            assert (code, out) == (5, "")
            assert f"`kill {os.getpid()}`" in err
