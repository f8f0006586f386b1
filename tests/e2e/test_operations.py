"""Real processes as operators see them: figures, health, systemd, logs and their end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import POLL_S, Processes, environment
from tests.services.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_S = 60.0


def until(wanted: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := wanted():
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"not in time: {what}")


class Watched:
    """A service that tells its figures, and logs JSON."""

    def __init__(self, processes: Processes, name: str) -> None:
        self.processes = processes
        self.name = name
        self.base = until(self._address, f"metrics of {name}")

    def _address(self) -> str:
        for line in self.lines():
            _, found, rest = str(line.get("message", "")).partition("metrics at ")
            if found:
                return rest.partition("/metrics")[0]
        return ""

    def lines(self) -> list[dict[str, Any]]:
        """Its log; lines that its stdout brings are left out."""
        text = self.processes.log(self.name).splitlines()
        return [json.loads(line) for line in text if line.startswith("{")]

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and body."""
        connection = HTTPConnection(self.base.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def figures(self) -> dict[str, float]:
        """Every sample, by its name and labels as Prometheus writes them."""
        status, text = self.get("/metrics")
        assert status == 200
        return {
            sample.name + json.dumps(sample.labels, sort_keys=True): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def figure(figures: dict[str, float], name: str, **labels: str) -> float:
    return figures[name + json.dumps(labels, sort_keys=True)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", 4096)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as made:
        made.start_sentinel()
        yield made


def empty(manager: socket.socket) -> None:
    """Take what is there."""
    with contextlib.suppress(BlockingIOError):
        while manager.recv(4096):
            pass


WATCHED = ("--metrics", "0", "--log-format", "json", "--no-mdns")


def test_a_host_tells_what_it_does_before_during_and_after_an_answer(
    processes: Processes, tiny: TinyModel
) -> None:
    processes.start_host("host", str(tiny.path), *WATCHED)
    host = Watched(processes, "host")
    status, told = host.get("/readyz")
    assert (status, json.loads(told)["ready"]) in ((200, True), (503, False))
    assert host.get("/healthz")[0] == 200
    until(lambda: host.get("/readyz")[0] == 200, "ready")
    before = host.figures()
    assert figure(before, "diffuse_host_state", state="ready") == 1
    assert figure(before, "diffuse_members", liveness="alive") == 2
    assert figure(before, "diffuse_tokens_drawn_total") == 0
    ask = ("query", "--model", "tiny", "--raw", "--bootstrap", processes.sentinel)
    asked = processes.spawn(*ask, "--prompt", "w1 w2 w3", "--max-tokens", "200", "--ignore-eos")
    until(lambda: figure(host.figures(), "diffuse_sessions_opened_total") == 1, "a session")
    asked.communicate(timeout=60)
    assert asked.returncode == 0
    until(lambda: figure(host.figures(), "diffuse_sessions_closed_total") == 1, "its end")
    after = host.figures()
    assert figure(after, "diffuse_tokens_drawn_total") >= 200
    assert figure(after, "diffuse_rows_total", of="prompt") >= 3
    assert figure(after, "diffuse_rows_total", of="answer") >= 199
    assert figure(after, "diffuse_kv_used_bytes") == figure(after, "diffuse_sessions") == 0
    for key, value in before.items():
        name = key.partition("{")[0]
        if name.endswith(("_total", "_bucket", "_count", "_sum")):
            assert after[key] >= value, key
    (node,) = {line["node"] for line in host.lines()} - {None}
    assert figure(after, "diffuse_build_info", node=node, role="host", version="0.1.0") == 1
    assert processes.running["host"].poll() is None


def test_sigterm_lets_an_answer_finish_as_long_as_was_said(
    processes: Processes, tiny: TinyModel
) -> None:
    processes.start_host("host", str(tiny.path), *WATCHED, "--drain-timeout", "120")
    host = Watched(processes, "host")
    until(lambda: host.get("/readyz")[0] == 200, "ready")
    ask = ("query", "--model", "tiny", "--raw", "--bootstrap", processes.sentinel, "--json")
    asked = processes.spawn(*ask, "--prompt", "w1", "--max-tokens", "1000", "--ignore-eos")
    until(lambda: figure(host.figures(), "diffuse_sessions") == 1, "a session")
    process = processes.running["host"]
    process.send_signal(signal.SIGTERM)
    _, told = until(lambda: found if (found := host.get("/readyz"))[0] == 503 else None, "leaving")
    assert "leaving" in json.loads(told)["reason"]
    assert host.get("/healthz")[0] == 200
    out, _ = asked.communicate(timeout=90)
    assert asked.returncode == 0
    assert json.loads(out)["usage"]["completion_tokens"] == 1000
    assert process.wait(30) == 0
    assert not [line for line in host.lines() if line["level"] in ("error", "critical")]


def test_the_line_of_a_unit_runs_and_keeps_systemd_informed(
    processes: Processes, tiny: TinyModel, tmp_path: Path
) -> None:
    words = ("host", "--model", str(tiny.path), "--listen", "127.0.0.1:0", "--threads", "1")
    words += ("--bootstrap", processes.sentinel, "--no-mdns")
    unit = processes.command("service", "print", "--user", *words)
    assert unit.returncode == 0, unit.stderr
    (start,) = [line for line in unit.stdout.splitlines() if line.startswith("ExecStart=")]
    state = tmp_path / "unit"
    place = environment(tmp_path) | {"DIFFUSE_STATE_DIR": str(state), "WATCHDOG_USEC": "400000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        place["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        command = shlex.split(start.removeprefix("ExecStart="))
        with subprocess.Popen(
            command, env=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            try:
                told = manager.recv(4096).decode().splitlines()
                assert told[0] == "READY=1"
                assert f"MAINPID={process.pid}" in told
                heard: list[str] = []
                while "STATUS=tiny, layers 0:10: ready" not in heard:
                    heard += manager.recv(4096).decode().splitlines()
                assert "WATCHDOG=1" in heard
                # A process that does not turn any more says nothing.
                process.send_signal(signal.SIGSTOP)
                manager.setblocking(False)
                empty(manager)
                time.sleep(1)
                with pytest.raises(BlockingIOError):
                    manager.recv(4096)
                process.send_signal(signal.SIGCONT)
                manager.settimeout(30)
                while manager.recv(4096) != b"WATCHDOG=1":
                    pass
                process.terminate()
                while manager.recv(4096) != b"STOPPING=1":
                    pass
                assert process.wait(30) == 0
            finally:
                process.kill()


def test_sentinels_nodes_and_the_api_tell_their_figures_as_well(processes: Processes) -> None:
    listen = ("--listen", "127.0.0.1:0", "--bootstrap", processes.sentinel)
    processes.start("node", "node", *listen, *WATCHED)
    processes.start("other", "sentinel", *listen, *WATCHED)
    api = ("--port", "0", "--no-auth", "--bootstrap", processes.sentinel)
    processes.start("api", "serve", *api, *WATCHED)
    for name, told in (("node", "client"), ("other", "sentinel"), ("api", "serve")):
        one = Watched(processes, name)
        assert one.get("/healthz")[0] == 200
        # The API has to find its network first.
        until(lambda one=one: one.get("/readyz")[0] == 200, f"{name} ready")
        text = one.get("/metrics")[1]
        assert f'role="{told}"' in text
        assert ("diffuse_relay_circuits" in text) == (name == "other")
        assert one.get("/metrics", {"Host": "evil.example"})[0] >= 400


def test_a_port_that_is_taken_ends_the_service_with_a_word(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Processes(tmp_path) as processes:
            process = processes.start(
                "node", "node", "--listen", "127.0.0.1:0", "--no-mdns", "--metrics", str(port)
            )
            assert process.wait(30) == 2
            assert "choose another with --metrics" in processes.log("node")
            assert "Traceback" not in processes.log("node")
            assert not os.path.exists(tmp_path / "node" / "node.json")  # noqa: PTH110
