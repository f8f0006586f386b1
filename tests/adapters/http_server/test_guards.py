"""Who may ask: the key, the names of this server, and web pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diffuse_core.adapters.http_server import (
    BearerGuard,
    HostGuard,
    OriginGuard,
    Refusal,
    parse_name,
    parse_origin,
    plain,
)
from diffuse_core.errors import UsageError
from tests.adapters.http_server.asking import Seen, ask, echo, request, serving

KEY = "sk-diffuse-0123456789abcdef"


def as_json(refusal: Refusal) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """A shape of refusals as an API has one."""
    body = json.dumps({"error": refusal.message, "code": refusal.code}).encode()
    return refusal.status, [(b"content-length", str(len(body)).encode())], body


async def status(app: Any, data: bytes) -> int:
    async with serving(app) as server:
        return (await ask(server, data, data.split()[0].decode())).status


@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/v1/chat/completions", "/nothing", "/healthz/"]
)
@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["Authorization: Bearer "],
        ["Authorization: Bearer sk-diffuse-0123456789abcdeX"],
        ["Authorization: Bearer sk-diffuse-0123456789abcde"],
        [f"Authorization: Basic {KEY}"],
        [f"Authorization: {KEY}"],
        ["Authorization: Bearer x", f"Authorization: Bearer {KEY}"],
        [f"Authorization: Bearer {KEY}", "Authorization: Bearer x"],
        ["Authorization: Bearer \xff\xfe"],
        [f"Proxy-Authorization: Bearer {KEY}"],
    ],
    ids=["none", "empty", "wrong", "shorter", "basic", "bare", "2nd", "1st", "bytes", "proxy"],
)
async def test_without_the_key_there_is_nothing_to_see(path: str, lines: list[str]) -> None:
    seen = Seen()
    app = BearerGuard(echo(seen), KEY, as_json, ("/healthz",))
    async with serving(app) as server:
        answers = [
            await ask(
                server, request(method, path, *lines).replace(b"\xc3\xbf\xc3\xbe", b"\xff\xfe")
            )
            for method in ("GET", "POST", "OPTIONS")
        ]
    assert {answer.status for answer in answers} == {401}
    assert all(json.loads(answer.body)["code"] == "invalid_api_key" for answer in answers)
    assert not seen.begun.is_set()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_key_opens(scheme: str) -> None:
    app = BearerGuard(echo(Seen()), KEY, as_json)
    assert await status(app, request("GET", "/", f"Authorization: {scheme} {KEY}")) == 200


async def test_an_open_path_needs_no_key() -> None:
    app = BearerGuard(echo(Seen()), KEY, as_json, ("/healthz",))
    assert await status(app, request("GET", "/healthz?a=b")) == 200
    assert await status(app, request("GET", "/%68ealthz")) == 200
    assert await status(app, request("HEAD", "/healthz")) == 200
    assert await status(app, request("POST", "/healthz", body=b"much")) == 401
    assert await status(app, request("GET", "//healthz")) == 401


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("LocalHost:8080", True),
        ("localhost.", True),
        ("127.0.0.1:1", True),
        ("[::1]", True),
        ("[::1]:8080", True),
        ("[0:0:0:0:0:0:0:1]:8080", True),
        ("ai.example.org:443", True),
        ("192.168.1.7:8080", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8080", False),
        ("localhost:80:80", False),
        ("localhost:x", False),
        ("localhost@evil.example", False),
        ("evil.example#localhost", False),
        ("192.168.1.8", False),
        ("[::2]", False),
        ("", False),
        ("localhost, evil.example", False),
    ],
)
async def test_a_name_that_is_not_ours_is_refused(host: str, known: bool) -> None:
    app = HostGuard(echo(Seen()), ("AI.example.org", "192.168.1.7"), plain)
    assert await status(app, request(host=host)) == (200 if known else 403)


async def test_http_1_0_without_a_host_is_refused() -> None:
    app = HostGuard(echo(Seen()), (), plain)
    assert await status(app, b"GET / HTTP/1.0\r\n\r\n") == 403


@pytest.mark.parametrize(
    ("host", "known"), [("10.1.2.3:80", True), ("[fe80::1]", True), ("evil.example", False)]
)
async def test_listening_everywhere_any_address_is_ours_and_no_name(
    host: str, known: bool
) -> None:
    app = HostGuard(echo(Seen()), (), plain, any_address=True)
    assert await status(app, request(host=host)) == (200 if known else 403)


PAGE = "http://localhost:3000"


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:3001",
        "https://localhost:3000",
        "http://localhost:3000.evil.example",
        "http://localhost",
        "*",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_pages_of_other_origins_are_refused_without_cors(origin: str, method: str) -> None:
    seen = Seen()
    app = OriginGuard(echo(seen), (PAGE,), plain)
    lines = [f"Origin: {origin}", "Access-Control-Request-Method: POST"]
    async with serving(app) as server:
        answer = await ask(server, request(method, "/", *lines))
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert not seen.begun.is_set()


async def test_without_an_origin_there_is_no_cors() -> None:
    app = OriginGuard(echo(Seen()), (PAGE,), plain)
    async with serving(app) as server:
        answer = await ask(server, request())
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_page_that_is_allowed_may_ask_and_read() -> None:
    app = OriginGuard(BearerGuard(echo(Seen()), KEY, plain), (PAGE,), plain)
    async with serving(app) as server:
        asked = await ask(
            server,
            request(
                "OPTIONS",
                "/v1/chat/completions",
                f"Origin: {PAGE}",
                "Access-Control-Request-Method: POST",
                "Access-Control-Request-Headers: authorization,content-type, x-stainless-os, b d",
            ),
        )
        lines = [f"Origin: {PAGE}", f"Authorization: Bearer {KEY}"]
        answer = await ask(server, request("GET", "/", *lines))
        keyless = await ask(server, request("GET", "/", f"Origin: {PAGE}"))
    assert asked.status == 204
    allowed = asked.headers["access-control-allow-headers"]
    assert allowed == "authorization, content-type, x-stainless-os"
    assert asked.headers["access-control-allow-methods"] == "GET, POST"
    for told in (asked, answer, keyless):
        assert told.headers["access-control-allow-origin"] == PAGE
        assert told.headers["vary"].startswith("origin")
        assert "access-control-allow-credentials" not in told.headers
    assert answer.status == 200
    assert keyless.status == 401


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://chat.example.org", "https://chat.example.org"),
        ("https://Chat.Example.org:443/", "https://chat.example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins_are_taken_as_browsers_write_them(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    ["*", "", "null", "chat.example.org", "http://a/b", "http://a?b", "ftp://a", "http://a:x"],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--allow-origin"):
        parse_origin(text)


@pytest.mark.parametrize("text", ["*", "*.example.org", "", "a b", "http://a", "a/b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        parse_name(text)


def test_a_name_is_taken_without_its_port() -> None:
    assert parse_name("AI.Example.org:8443") == "ai.example.org"
