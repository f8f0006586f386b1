"""Real nodes ended by their owner: at once, in an orderly way, and after a long session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from diffuse_core.domain.view import Finished, GenerateRequest, TextDelta
from diffuse_core.errors import StagesLost
from diffuse_core.services import run
from diffuse_core.services.placement import STOP_S
from diffuse_core.settings import Places, running_node
from tests.e2e.processes import Processes, environment
from tests.services.tiny_model import make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

COUNT = 60


class Command:
    """A `stop` or `drain` of the host, whose stderr is read as it comes.

    It is waited for in a thread: a client that answers nobody for ten seconds is held to be gone.
    """

    def __init__(self, place: Processes, *arguments: str) -> None:
        given = [*arguments, "--state-dir", str(place.directory / "host"), "--json"]
        self.begun = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "diffuse_core", *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(place.directory),
        )
        place.running[f"command {id(self)}"] = self._process

    async def line(self) -> str:
        return (await asyncio.to_thread(self._process.stderr.readline)).strip()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    async def end(self) -> tuple[int, str, str, float]:
        """Its exit code, stdout, the rest of stderr, and the seconds since it was started."""
        out, err = await asyncio.to_thread(self._process.communicate, timeout=60)
        return self._process.returncode, out, err, time.monotonic() - self.begun


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Processes]:
    model = make_tiny_model(tmp_path / "tiny")
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        processes.start_host("host", str(model.path))
        processes.until_servable()
        yield processes


@asynccontextmanager
async def resting(
    place: Processes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncGenerator]:
    """A session that has given its first token and goes on when it is read on."""
    monkeypatch.setattr(run, "CREDITS", 8)
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(place.directory / "cache"))
    request = GenerateRequest(model="tiny", raw=words(13), max_tokens=COUNT, ignore_eos=True)
    async with (
        wiring.observe(Places((place.sentinel,))) as (_, client),
        aclosing(client.generate(request)) as stream,
    ):
        await anext(event async for event in stream if isinstance(event, TextDelta))
        yield stream


async def finished(stream: AsyncGenerator) -> int:
    ends = [event async for event in stream if isinstance(event, Finished)]
    return ends[0].usage.completion_tokens


async def test_a_drain_lets_a_session_finish_however_long_it_takes(
    place: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = place.running["host"]
    async with resting(place, monkeypatch) as stream:
        drain = Command(place, "drain")
        assert await drain.line() == "1 session left"
        # Ctrl+C ends the command and not the drain.
        drain.interrupt()
        code, out, err, _ = await drain.end()
        assert (code, out) == (130, "")
        again = f"diffuse stop --now --state-dir {place.directory / 'host'}"
        assert err == f"the node goes on draining; to end it at once: {again}\n"
        again = Command(place, "drain", "--timeout", "3600")
        assert await again.line() == "1 session left"
        await asyncio.sleep(STOP_S + 2)  # Longer than a stop would wait.
        assert host.poll() is None
        status = await asyncio.to_thread(
            place.command, "status", "--state-dir", str(place.directory / "host"), "--json"
        )
        told = json.loads(status.stdout)["telemetry"]
        assert told["stage"] == "leaving: 1 session left"
        arguments = ("--bootstrap", place.sentinel, "--model", "tiny", "--prompt", "w1")
        asked = await asyncio.to_thread(place.command, "query", *arguments)
        assert asked.returncode in (3, 4, 6), asked.stderr
        assert await finished(stream) == COUNT
    code, out, err, seconds = await again.end()
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["pid"], told["sessions"], told["cut"]) == (host.pid, 1, 0)
    assert STOP_S + 2 < told["seconds"] <= seconds
    assert host.wait(1) == 0
    assert running_node(place.directory / "host") is None


async def test_a_stop_ends_a_drain_at_once_when_told_so(
    place: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with resting(place, monkeypatch) as stream:
        drain = Command(place, "drain")
        assert await drain.line() == "1 session left"
        code, _, err, seconds = await Command(place, "stop", "--now").end()
        assert code == 0
        assert err in ("", "1 session left\n")
        assert seconds < STOP_S
        assert place.running["host"].wait(1) == 0
        assert (await drain.end())[0] == 0
        with pytest.raises(StagesLost):
            await finished(stream)


async def test_a_stop_waits_for_some_seconds(
    place: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with resting(place, monkeypatch):
        code, out, err, _ = await Command(place, "stop").end()
    assert (code, err) == (0, "1 session left\n")
    told = json.loads(out)
    assert (told["sessions"], told["cut"]) == (1, 1)
    assert STOP_S - 0.5 <= told["seconds"] < STOP_S + 5


def test_nodes_without_sessions_end_at_once(place: Processes) -> None:
    place.start("node", "node", "--listen", "127.0.0.1:0", "--bootstrap", place.sentinel)
    place.address("node")
    for command, name in (("stop", "node"), ("drain", "host"), ("stop", "sentinel")):
        done = place.command(command, "--state-dir", str(place.directory / name))
        assert (done.returncode, done.stderr) == (0, "")
        process = place.running[name]
        assert f"(pid {process.pid}) is gone" in done.stdout
        assert process.wait(1) == 0, place.log(name)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_a_node_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        process = processes.running["sentinel"]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            done = processes.command("stop", "--now", "--state-dir", str(tmp_path / "sentinel"))
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert done.returncode == 5
        assert "Traceback" not in done.stderr
        assert f"does not answer: process {process.pid}" in done.stderr
        assert f"kill -CONT {process.pid}" in done.stderr
        assert "firewall" not in done.stderr
        assert process.poll() is None
