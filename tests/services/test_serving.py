"""The whole server on a real network over sockets: every route behind every guard."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core import serving
from diffuse_core.adapters.http_server import HttpLimits, serve_http
from diffuse_core.errors import UsageError
from diffuse_core.services.kept_network import KeptNetwork
from diffuse_core.serving import ServeOptions, api_app, serve_api, told
from diffuse_core.settings import NetworkOptions, Places
from tests.adapters.http_server.asking import Answer, read_answer
from tests.adapters.openai_server.fake_answers import FakeAnswers
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.services.cluster import Cluster

KEY = "sk-diffuse-0123456789abcdef"
AUTH = f"Authorization: Bearer {KEY}"
JSON = "Content-Type: application/json"
NOWHERE = ("127.0.0.1:9",)
PATHS = (
    "/v1/models",
    "/v1/models/some/model",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/nothing",
    "/v1",
    "/",
    "/docs",
    "/metrics",
    "/healthz/",
)


@pytest.fixture(autouse=True)
def hasty_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEALTH_S", 0.3)


class Port:
    """A server and how to ask it."""

    def __init__(self, address: str, stop: asyncio.Event) -> None:
        self.port = int(address.rpartition(":")[2])
        self.stop = stop

    async def ask(self, method: str, path: str, *lines: str, body: bytes = b"") -> Answer:
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write("\r\n".join([*head, "", ""]).encode() + body)
            return await read_answer(reader, method)
        finally:
            writer.close()

    async def post(self, path: str, *lines: str, **fields: Any) -> Answer:
        return await self.ask("POST", path, JSON, *lines, body=json.dumps(fields).encode())


@asynccontextmanager
async def served(directory: Path, *places: str, **options: Any) -> AsyncIterator[Port]:
    stop = asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    given = ServeOptions(
        port=0,
        places=Places(places or NOWHERE, directory),
        network=NetworkOptions("test", mdns=False),
        **{"key": lambda: KEY, **options},
    )
    task = asyncio.create_task(serve_api(given, stop, ready.set_result))
    try:
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield Port(await ready, stop)
    finally:
        stop.set()
        async with asyncio.timeout(15):
            await task


def error_of(answer: Answer) -> dict[str, Any]:
    error = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


async def test_every_path_needs_the_key_but_one(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for path in PATHS:
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                for lines in ((), ("Authorization: Bearer wrong",)):
                    answer = await server.ask(method, path, *lines)
                    assert answer.status == 401, (method, path)
                    assert error_of(answer)["code"] == "invalid_api_key"
                    assert answer.headers["x-request-id"]
        health = await server.ask("GET", "/healthz")
    assert health.status == 503
    assert json.loads(health.body)["status"] == "unreachable"
    assert "127.0.0.1" not in health.body.decode()


async def test_refusals_have_the_shape_of_the_api(tmp_path: Path) -> None:
    deep = b'{"model":' + b"[" * 1000 + b"]" * 1000 + b"}"
    async with served(tmp_path) as server:
        cases = [
            (await server.ask("GET", "/v1/nothing", AUTH), 404),
            (await server.ask("DELETE", "/v1/models", AUTH), 405),
            (await server.ask("GET", "/v1/chat/completions", AUTH), 405),
            (await server.ask("POST", "/v1/chat/completions", AUTH, body=b"a=b"), 415),
            (await server.ask("POST", "/v1/chat/completions", AUTH, JSON, body=deep), 400),
            (await server.ask("POST", "/v1/chat/completions", AUTH, JSON, body=b"{nope"), 400),
            (await server.ask("GET", "/v1/models", AUTH, "Origin: http://evil.example"), 403),
            (await server.ask("GET", "/v1/models", AUTH, "Content-Length: x"), 400),
        ]
    for answer, status in cases:
        assert answer.status == status
        error_of(answer)


async def test_a_defect_has_the_shape_of_the_api_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_kept: object) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(KeptNetwork, "view", broken)
    async with served(tmp_path) as server:
        for path in ("/healthz", "/v1/models"):
            answer = await server.ask("GET", path, AUTH)
            assert answer.status == 500
            assert error_of(answer)["code"] == "internal_error"
    assert caplog.text.count("ValueError at ") == 2
    assert "secret" not in caplog.text


async def test_nobody_is_led_on_to_another_path(tmp_path: Path) -> None:
    """Behind a proxy that speaks TLS it would be one in clear."""
    async with served(tmp_path) as server:
        answer = await server.post("/v1/chat/completions/", AUTH, model="m")
    assert answer.status == 404
    error_of(answer)


async def test_a_key_that_cannot_be_had_ends_it(tmp_path: Path) -> None:
    def no_key() -> str:
        raise UsageError("no key")

    before = asyncio.all_tasks()
    options = ServeOptions(port=0, key=no_key, places=Places(NOWHERE, tmp_path))
    with pytest.raises(UsageError, match="no key"):
        await serve_api(options, asyncio.Event(), lambda _: None)
    await until(lambda: asyncio.all_tasks() <= before)


def stream_request() -> bytes:
    fields = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    body = json.dumps(fields).encode()
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: localhost", JSON]
    head += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


async def test_the_generation_for_a_reader_who_takes_nothing_is_ended() -> None:
    answers = FakeAnswers(says=("x" * 10_000,) * 100_000)
    limits = HttpLimits(drain_s=0.2)
    app = api_app(answers, ServeOptions(), limits)
    async with serve_http(app, "127.0.0.1", 0, limits, told) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(stream_request())
        await until(lambda: answers.closed)
        assert (answers.running, server.connections) == (0, 0)
    assert answers.tokens < 10_000
    writer.close()


async def test_a_stream_that_the_end_cuts_says_so() -> None:
    answers = FakeAnswers(pause=asyncio.Event())
    limits = HttpLimits(grace_s=0.05)
    app = api_app(answers, ServeOptions(), limits)
    async with serve_http(app, "127.0.0.1", 0, limits, told) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(stream_request())
        heard = await reader.readuntil(b"Hello")
    heard += await reader.read()
    writer.close()
    # It ends as a whole body does, so that a client gets to read the event.
    assert heard.endswith(b"0\r\n\r\n")
    last = heard.rpartition(b"data: ")[2].partition(b"\n\n")[0]
    assert json.loads(last)["error"]["code"] == "unavailable"
    assert answers.running == 0


async def test_the_answer_to_head_has_no_body(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        answer = await server.ask("HEAD", "/healthz")
        refused = await server.ask("HEAD", "/v1/models")
    assert (answer.status, refused.status) == (503, 401)


async def test_names_of_this_server_are_checked(tmp_path: Path) -> None:
    async with served(tmp_path, names=("ai.example.org",)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for host, status in (("evil.example", 403), ("ai.example.org:443", 401)):
            writer.write(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert (await read_answer(reader)).status == status
        writer.close()


async def test_a_port_in_use_ends_it_and_leaves_nothing_running(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        options = ServeOptions(port=server.port, places=Places(NOWHERE, tmp_path))
        before = asyncio.all_tasks()
        with pytest.raises(UsageError, match="--port"):
            await serve_api(options, asyncio.Event(), lambda _: None)
        await until(lambda: asyncio.all_tasks() <= before)


@pytest.fixture
async def cluster(split: Callable) -> Cluster:
    return await split(2, sockets=True)


async def test_it_answers_over_a_real_network(cluster: Cluster, tmp_path: Path) -> None:
    async with served(tmp_path, *cluster.bootstrap, models=()) as server:
        assert json.loads((await server.ask("GET", "/healthz")).body) == {"status": "ok"}
        listed = json.loads((await server.ask("GET", "/v1/models", AUTH)).body)["data"]
        asked = {"model": listed[0]["id"], "prompt": "one two three", "max_tokens": 5}
        answer = await server.post("/v1/completions", AUTH, **asked)
    assert answer.status == 200
    assert json.loads(answer.body)["usage"]["completion_tokens"] >= 1


async def test_a_model_that_is_not_served_is_unknown(cluster: Cluster, tmp_path: Path) -> None:
    async with served(tmp_path, *cluster.bootstrap, models=("other",)) as server:
        listed = json.loads((await server.ask("GET", "/v1/models", AUTH)).body)["data"]
        asked = {"model": "tiny", "prompt": "one", "max_tokens": 5}
        answer = await server.post("/v1/completions", AUTH, **asked)
    assert listed == []
    assert answer.status == 404


async def test_without_a_key_programs_of_this_machine_may_ask_but_no_page(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, key=None, origins=("http://localhost:3000",)) as server:
        assert (await server.ask("GET", "/v1/nothing")).status == 404
        form = await server.ask("POST", "/v1/completions", "Content-Type: text/plain", body=b"{}")
        page = await server.ask("GET", "/v1/nothing", "Origin: http://localhost:3000")
        other = await server.ask("GET", "/v1/nothing", "Origin: http://localhost:3001")
    assert form.status == 415
    assert (page.status, other.status) == (404, 403)
    assert page.headers["access-control-allow-origin"] == "http://localhost:3000"
