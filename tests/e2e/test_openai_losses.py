"""A host dies while the API streams: clients are told of the wait, of the end, and of the gap."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from tests.e2e.processes import Processes
from tests.services.tiny_model import LAYERS, words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HALF = str(LAYERS // 2)
GRACE_S = 3.0
SOON_S = 60.0


def test_a_lost_stage_is_waited_for_then_told_and_the_gap_is_named(
    tmp_path: Path, talkative: TinyModel
) -> None:
    with Processes(tmp_path) as processes:
        processes.start_sentinel()
        for name in ("stays", "goes"):
            processes.start_host(name, str(talkative.path), "--max-layers", HALF)
        model = processes.until_servable(hosts=2)["id"]
        where = ("--bootstrap", processes.sentinel, "--port", "0")
        processes.start("serve", "serve", *where, "--json", "--no-auth")
        url = served(processes)
        body: dict[str, Any] = {
            "model": model, "prompt": words(5), "max_tokens": 1900, "ignore_eos": True,
            "temperature": 0, "stream": True, "diffuse": {"grace_s": GRACE_S},
        }  # fmt: skip
        lines: list[str] = []
        with ask(f"{url}/completions", body) as stream:
            for line in stream:
                lines.append(line.decode().strip())
                if len(lines) == 40:
                    processes.running["goes"].kill()
                    processes.running["goes"].wait(10)
        lines = [line for line in lines if line]
        comments = [line for line in lines if line.startswith(":")]
        assert any("were lost; waiting up to" in line for line in comments), lines[-5:]
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert error["code"] in ("stages_lost", "model_incomplete")
        told = until_incomplete(url, {**body, "stream": False})
        assert re.search(rf"layers (0:{HALF}|{HALF}:{LAYERS}) of {LAYERS}", told["message"])
        until_listed(url, [])
        processes.start_host("goes", str(talkative.path), "--max-layers", HALF)
        until_listed(url, [model])
        whole = {**body, "stream": False, "max_tokens": 8}
        with ask(f"{url}/completions", whole) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 8


def ask(url: str, body: dict[str, Any]) -> Any:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    return urllib.request.urlopen(request, timeout=60)  # noqa: S310


def refusal(url: str, body: dict[str, Any]) -> tuple[int, Any, dict[str, Any]]:
    """Status, headers and error of what is refused; no error of what is not."""
    try:
        with ask(url, body) as answer:
            return answer.status, answer.headers, {}
    except HTTPError as refused:
        with refused:
            return refused.status or 0, refused.headers, json.load(refused)["error"]


def models(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/models", timeout=30) as answer:  # noqa: S310
        return [model["id"] for model in json.load(answer)["data"]]


def until_listed(url: str, wanted: list[str]) -> None:
    deadline = time.monotonic() + SOON_S
    while models(url) != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def until_incomplete(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The error, as soon as the network knows that the host is gone."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        status, headers, error = refusal(f"{url}/completions", {**body, "max_tokens": 1})
        assert status in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE), error
        if status != HTTPStatus.OK:
            assert int(headers["retry-after"]) > 0
        if error.get("code") == "model_incomplete":
            return error
        time.sleep(0.2)
    raise AssertionError("the model is still said to be complete")


def served(processes: Processes) -> str:
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        for line in processes.log("serve").splitlines():
            if line.startswith('{"url"'):
                return str(json.loads(line)["url"])
        time.sleep(0.1)
    raise AssertionError(processes.log("serve"))
