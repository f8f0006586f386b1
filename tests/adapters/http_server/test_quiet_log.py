"""What clients send is in no log at any level; each request has one line all the same."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from diffuse_core.adapters.http_server import (
    BearerGuard,
    HostGuard,
    JsonGuard,
    OriginGuard,
    RequestLog,
    plain,
)
from tests.adapters.http_server.asking import (
    QUICK,
    ask,
    connected,
    post,
    request,
    serving,
    until_closed,
)

if TYPE_CHECKING:
    from starlette.requests import Request

CANARY = "canary7f3a"
KEY = "sk-" + "k" * 30
HASTY = replace(QUICK, head_s=0.05, stall_s=0.05, idle_s=0.02, linger_s=0.05)
AUTH = f"Authorization: Bearer {KEY}"


async def _chat(request: Request) -> JSONResponse:
    body = await request.body()
    if b"boom" in body:
        raise ValueError(body.decode())
    request.state.tokens = (3, 4)
    return JSONResponse({"said": body.decode()})


def app() -> RequestLog:
    routes = [Route("/v1/chat", _chat, methods=["POST"]), Route("/v1/models/{id:path}", _chat)]
    guarded = JsonGuard(Starlette(routes=routes), QUICK, plain)
    guarded = OriginGuard(BearerGuard(guarded, KEY, plain, ("/healthz",)), (), plain)
    return RequestLog(HostGuard(guarded, (), plain), plain, ("/v1/chat",))


def body(text: str) -> bytes:
    return f'{{"prompt": "{text}"}}'.encode()


SENT = {
    "prompt": post(body(CANARY), AUTH, path="/v1/chat"),
    "defect": post(body(CANARY + " boom"), AUTH, path="/v1/chat"),
    "query": post(body("x"), AUTH, path=f"/v1/chat?key={CANARY}"),
    "path": request("GET", f"/v1/models/{CANARY}", AUTH),
    "unknown path": request("GET", f"/{CANARY}", AUTH),
    "header": post(body("x"), AUTH, f"X-Secret: {CANARY}", path="/v1/chat"),
    "key": post(body("x"), f"Authorization: Bearer {CANARY}", path="/v1/chat"),
    "host": request(host=f"{CANARY}.example"),
    "origin": request("GET", "/", f"Origin: http://{CANARY}.example"),
    "method": request(CANARY.upper(), "/v1/chat", AUTH),
    "kind": request("POST", "/v1/chat", AUTH, f"Content-Type: {CANARY}", body=b"x"),
    "id": request("GET", "/", AUTH, f"X-Request-Id: {CANARY} with spaces"),
    "depth": post(b"[" * 50 + body(CANARY), AUTH, path="/v1/chat"),
    "large": post(body(CANARY + "a" * 2000), AUTH, path="/v1/chat"),
    "stalled": post(body(CANARY), AUTH, path="/v1/chat")[:-3],
    "no http": f"{CANARY} {CANARY}\r\n\r\n".encode(),
    "bad header": f"GET / HTTP/1.1\r\n{CANARY}\r\n\r\n".encode(),
    "bad header name": f"GET / HTTP/1.1\r\n{CANARY} x: {CANARY}\r\n\r\n".encode(),
    "bad length": f"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {CANARY}\r\n\r\n".encode(),
    "bad chunk": request("POST", "/v1/chat", AUTH, "Transfer-Encoding: chunked")
    + CANARY.encode()
    + b"\r\n\r\n",
    "bad path": f"GET /\x7f{CANARY} HTTP/1.1\r\nHost: a\r\n\r\n".encode(),
    "unfinished": f"GET /{CANARY}".encode(),
}


@pytest.mark.parametrize("kind", SENT)
async def test_nothing_that_is_sent_is_logged(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.get_running_loop().set_debug(True)
    caplog.set_level(1)
    logging.getLogger("uvicorn.error").setLevel(1)
    async with serving(app(), HASTY) as server, connected(server) as (reader, writer):
        writer.write(SENT[kind])
        await until_closed(reader)
    told = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert CANARY not in told.lower()
    assert KEY not in told
    captured = capfd.readouterr()
    assert CANARY not in (captured.out + captured.err).lower()


async def test_a_request_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(app()) as server:
        await ask(server, post(body("x"), AUTH, "X-Request-Id: mine-1", path="/v1/chat"))
        await ask(server, request("GET", "/v1/models/a/b", AUTH))
        await ask(server, request("GET", "/v1/chat?x=1"))
    first, second, third = (record.getMessage() for record in caplog.records)
    line = r"POST /v1/chat 200 in \d\.\d{3} s, request mine-1, 3 \+ 4 tokens"
    assert re.fullmatch(line, first)
    assert re.match(r"GET /v1/models/\{id:path\} 200 in .* request req_[0-9a-f]{24}", second)
    assert third.startswith("GET /v1/chat 401 in ")
    figures = caplog.records[0].__dict__
    assert (figures["status"], figures["completion_tokens"]) == (200, 4)


async def test_a_defect_is_logged_by_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(app()) as server:
        answer = await ask(server, post(body("boom"), AUTH, path="/v1/chat"))
    assert answer.status == 500
    told = caplog.records[0].getMessage()
    assert "ValueError at" in told
    assert "test_quiet_log.py" in told
    assert "_chat" in told


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["abc-DEF_1.2:3"], True),
        (["a" * 64], True),
        (["a" * 65], False),
        (["a b"], False),
        (["a\tb"], False),
        ([""], False),
        (["a", "b"], False),
        ([], False),
    ],
)
async def test_every_answer_has_one_id(given: list[str], taken: bool) -> None:
    lines = [f"X-Request-Id: {one}" for one in given]
    async with serving(app()) as server:
        answer = await ask(server, request("GET", "/nothing", AUTH, *lines))
    mark = answer.headers["x-request-id"]
    assert mark == given[0] if taken else re.fullmatch(r"req_[0-9a-f]{24}", mark)
