"""`diffuse serve` as a process: it starts without a network, answers, and ends in good order."""

from __future__ import annotations

import http.client
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.processes import Processes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
CANARY = "canary7f3a9e"


class Server:
    """A running `diffuse serve`."""

    def __init__(self, processes: Processes, *options: str) -> None:
        self.processes = processes
        self.connections: list[http.client.HTTPConnection] = []
        self.process = processes.start(
            "serve", "serve", "--port", "0", "--json", "--log-level", "debug", *options
        )
        told = self._told()
        self.address: str = told["address"]
        key = processes.directory / "serve" / "api.key"
        self.headers = {
            "Authorization": f"Bearer {key.read_text().strip()}",
            "Content-Type": "application/json",
        }

    def _told(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for line in self.log().splitlines():
                if line.startswith('{"url"'):
                    return dict(json.loads(line))
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)
        raise AssertionError(self.log())

    def log(self) -> str:
        return self.processes.log("serve")

    def send(self, method: str, path: str, **fields: Any) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        self.connections.append(connection)
        connection.request(method, path, json.dumps(fields) if fields else None, self.headers)
        return connection.getresponse()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def ask(self, method: str, path: str, **fields: Any) -> tuple[int, Any]:
        with self.send(method, path, **fields) as answer:
            return answer.status, json.loads(answer.read())

    def until_healthy(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.ask("GET", "/healthz")[0] != 200:
            assert time.monotonic() < until, self.log()
            time.sleep(0.2)

    def until_served(self) -> str:
        """A model's name; the server's picture of the network may be some seconds old."""
        until = time.monotonic() + PATIENCE_S
        while not (models := self.ask("GET", "/v1/models")[1].get("data")):
            assert time.monotonic() < until, self.log()
            time.sleep(0.2)
        return str(models[0]["id"])

    def stream(self, prompt: str) -> http.client.HTTPResponse:
        """An answer that takes a while, of which something came."""
        model = self.until_served()
        asked = {"model": model, "prompt": prompt, "max_tokens": 1900, "ignore_eos": True}
        answer = self.send("POST", "/v1/completions", **asked, stream=True)
        assert answer.status == 200
        assert answer.read(20)
        return answer

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Its exit code, and how many seconds it took to end."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S), time.monotonic() - started


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture
def serve(processes: Processes) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*options: str) -> Server:
        servers.append(Server(processes, *options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def start_network(processes: Processes, model: TinyModel) -> None:
    processes.start_sentinel()
    processes.start_host("host", str(model.path))
    processes.until_servable()


def has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    return process.poll() is not None


def test_it_starts_without_a_network_and_finds_what_comes(
    processes: Processes, talkative: TinyModel, serve: Callable[..., Server]
) -> None:
    """Then everything that it knew is killed, and comes back as others."""
    processes.start_sentinel()
    server = serve("--bootstrap", processes.sentinel)
    server.until_healthy()
    assert server.ask("GET", "/v1/models") == (200, {"object": "list", "data": []})
    processes.start_host("host", str(talkative.path))
    processes.until_servable()
    model = server.until_served()
    asked = {"model": model, "prompt": CANARY, "max_tokens": 4}
    assert server.ask("POST", "/v1/completions", **asked)[0] == 200
    for name in ("sentinel", "host"):
        processes.running[name].kill()
        processes.running[name].wait()
    processes.until(lambda: server.ask("GET", "/healthz")[0] != 200)
    assert server.ask("POST", "/v1/completions", **asked)[0] == 503
    processes.start("sentinel", "sentinel", "--listen", processes.sentinel)
    processes.address("sentinel")
    processes.start_host("host", str(talkative.path))
    processes.until_servable()
    server.until_healthy()
    server.until_served()
    assert server.ask("POST", "/v1/completions", **asked)[0] == 200
    assert CANARY not in server.log()
    assert server.headers["Authorization"].split()[1] not in server.log()
    assert server.end(signal.SIGTERM)[0] == 0


def test_sigterm_lets_a_stream_go_on_for_some_seconds_and_then_ends_it(
    processes: Processes, talkative: TinyModel, serve: Callable[..., Server]
) -> None:
    start_network(processes, talkative)
    server = serve("--bootstrap", processes.sentinel)
    server.until_healthy()
    answer = server.stream(CANARY)
    # Who does not read cannot be told anything.
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(answer.read)
        code, seconds = server.end(signal.SIGTERM)
        rest = reading.result(PATIENCE_S)
    assert code == 0
    assert seconds < 12
    # Cut it says so; on a fast machine it may be whole by then.
    assert (b'"code":"unavailable"' in rest) != (b"[DONE]" in rest)
    assert CANARY not in server.log()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_second_signal_does_not_wait_for_streams(
    processes: Processes,
    talkative: TinyModel,
    serve: Callable[..., Server],
    number: signal.Signals,
    code: int,
) -> None:
    start_network(processes, talkative)
    server = serve("--bootstrap", processes.sentinel)
    server.until_healthy()
    server.stream("one two three")
    server.process.send_signal(number)
    time.sleep(0.3)
    assert server.end(number)[0] == code


def test_idle_it_ends_at_once(serve: Callable[..., Server]) -> None:
    server = serve("--bootstrap", "127.0.0.1:9")
    server.process.send_signal(signal.SIGTERM)
    assert has_ended(server.process, 5)
    assert server.process.returncode == 0
