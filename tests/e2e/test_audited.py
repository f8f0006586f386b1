"""Answers of real hosts that are audited, and one that a script interrupts."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.town import NETWORK, Town
from tests.services.tiny_model import LAYERS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HOSTS = ("h1", "h2", "h3", "h4")
MANY, VERY_MANY = 300, 1900
HALVES = [[0, LAYERS // 2], [LAYERS // 2, LAYERS]]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, talkative: TinyModel) -> Iterator[Town]:
    """Two hosts for each half of the model."""
    with Town(tmp_path_factory.mktemp("town"), talkative) as town:
        town.start_sentinels("s")
        for host in HOSTS:
            town.run_host(host, "--max-layers", str(LAYERS // 2))
        town.until(lambda: robust(town))
        yield town


def robust(town: Town) -> bool:
    """Whether each layer has two holders that are ready."""
    models = town.status_from("o", "s")["models"]
    return bool(models) and models[0]["min_replicas"] == 2


def asked(town: Town, count: int) -> list[str]:
    """The words of a query."""
    what = ("--model", "tiny", "--raw", "--prompt", words(21), "--ignore-eos", "--json")
    return ["query", *town.bootstrap, *what, "--max-tokens", str(count), *NETWORK.arguments()]


def test_honest_hosts_agree_in_a_long_answer(town: Town) -> None:
    done = town.command(*asked(town, MANY), "--audit", "1")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert len(told["token_ids"]) == MANY
    assert told["events"] == []
    assert [found["verdict"] for found in told["audits"]] == ["agrees", "agrees"]
    assert [found["slice"] for found in told["audits"]] == HALVES
    for found, step in zip(told["audits"], told["route"], strict=True):
        (other,) = found["auditors"]
        assert found["node"] == step["node"] != other["auditor"]
        assert found["rows"] == told["usage"]["prompt_tokens"] + MANY - 1
    assert "(auditing 2 stages of this answer; Ctrl+C ends that)\n" in done.stderr
    town.until(lambda: all(map(town.idle, HOSTS)))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_script_gets_what_there_was(town: Town, number: signal.Signals, code: int) -> None:
    process = town.spawn(*asked(town, VERY_MANY))
    try:
        town.until(lambda: not all(map(town.idle, HOSTS)))
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    told = json.loads(out)
    assert told["finish_reason"] == "cancelled", err
    assert len(told["token_ids"]) == told["usage"]["completion_tokens"] < VERY_MANY
    assert process.returncode == code
    town.until(lambda: all(map(town.idle, HOSTS)))
