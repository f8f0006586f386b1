"""What options ask for, and several answers to one question."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core import wiring
from diffuse_core.cli import alternatives, run
from diffuse_core.domain.alternatives import alternative_seed
from diffuse_core.domain.decoding import TokenLogprobs
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Finished,
    GenerateEvent,
    GenerateRequest,
    RouteChosen,
    RouteStep,
    TextDelta,
    Timings,
    Usage,
)
from diffuse_core.errors import DiffuseError, Refused, StagesLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

ASK = ["query", "--model", "m", "--prompt", "hi", "--seed", "7"]
ROUTE = (RouteStep("ab" * 32, Slice(0, 4)),)
SEEDS = [alternative_seed(7, index) for index in range(8)]


class Client:
    """Answers each request with its seed, and fails where it is told to."""

    def __init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.failing: dict[int, list[tuple[int, DiffuseError]]] = {}
        self.running = self.most = 0
        self.nameless = False

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            async for event in self._events(request):
                await asyncio.sleep(0)
                yield event
        finally:
            self.running -= 1

    async def _events(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        seed = request.sampling.seed
        fails = self.failing.get(seed, [])
        after, error = fails.pop(0) if fails else (-1, None)
        yield RouteChosen(ROUTE, 3)
        for at, text in enumerate(("of ", str(seed))):
            if error is not None and at == after:
                raise error
            entry = TokenLogprobs(-0.5, ((at + 1, -0.25), (at, -0.5)))
            logprobs = () if request.logprobs is None else (entry,)
            yield TextDelta(text, (at,), logprobs)
        timings = Timings(ttft_s=0.1, total_s=0.1, tokens_per_s=1.0)
        yield Finished(
            finish_reason="stop", usage=Usage(3, 2), timings=timings, route=ROUTE, events=()
        )

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        assert model == "m"
        if self.nameless:
            raise StagesLost("gone")
        return {token: f"\x1b{token}" for token in tokens}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()

    @asynccontextmanager
    async def observe(*_: object) -> AsyncIterator[tuple[None, Client]]:
        yield None, found

    monkeypatch.setattr(wiring, "observe", observe)
    return found


def test_the_request_is_what_the_options_say(client: Client) -> None:
    given = (
        "--temperature 0.7 --top-p 0.9 --top-k 40 --min-p 0.05 --repetition-penalty 1.1 "
        "--presence-penalty 0.5 --frequency-penalty -0.5 --logit-bias 42=-100 --logit-bias 7=1.5 "
        "--min-tokens 3 --max-tokens 9 --logprobs 2 --grace 2.5 --no-speculation --timings"
    )
    assert run([*ASK, *given.split()]) == 0
    (asked,) = client.requests
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.05, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert sampling.logit_bias == ((42, -100.0), (7, 1.5))
    assert (sampling.seed, asked.min_tokens, asked.max_tokens) == (7, 3, 9)
    assert (asked.logprobs, asked.grace_s, asked.speculate, asked.timings) == (2, 2.5, False, True)


def test_without_options_the_request_is_the_plain_one(client: Client) -> None:
    assert run(ASK) == 0
    (asked,) = client.requests
    plain = GenerateRequest(model="m", messages=asked.messages)
    assert asked.sampling == type(asked.sampling)(seed=7)
    assert (asked.logprobs, asked.min_tokens, asked.grace_s) == (None, 0, plain.grace_s)
    assert (asked.speculate, asked.timings, asked.max_tokens) == (True, False, plain.max_tokens)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_log_probabilities_come_with_their_tokens(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--logprobs", "2", "--json"]) == 0
    first, second = told(capsys)["logprobs"]
    assert first == {
        "token_id": 0,
        "token": "\x1b0",
        "logprob": -0.5,
        "top": [
            {"token_id": 1, "token": "\x1b1", "logprob": -0.25},
            {"token_id": 0, "token": "\x1b0", "logprob": -0.5},
        ],
    }
    assert second["token_id"] == 1
    client.nameless = True
    assert run([*ASK, "--logprobs", "2", "--json"]) == 0
    assert told(capsys)["logprobs"][0]["token"] is None


def test_log_probabilities_are_shown_beside_the_answer(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--logprobs", "2"]) == 0
    said = capsys.readouterr()
    assert said.out == "of 7\n"
    first = said.err.splitlines()[0]
    assert first == '"\\u001b0" 60.7 %  of "\\u001b1" 77.9 %, "\\u001b0" 60.7 %'
    assert run(ASK) == 0
    assert capsys.readouterr().err == ""


def test_one_answer_for_scripts_has_its_seed_and_no_choices(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--json"]) == 0
    found = told(capsys)
    assert found["seed"] == 7
    assert {"choices", "logprobs", "token_timings"}.isdisjoint(found)


def test_several_answers_are_the_first_and_its_choices(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--json", "--n", "3", "--temperature", "1"]) == 0
    found = told(capsys)
    assert [choice["text"] for choice in found["choices"]] == [f"of {s}" for s in SEEDS[:3]]
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    assert [choice["seed"] for choice in found["choices"]] == SEEDS[:3]
    first = dict(found["choices"][0])
    del first["index"]
    assert {**found, "choices": None} == {**first, "choices": None}


def test_several_answers_are_printed_one_after_the_other(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, "--n", "2", "--temperature", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == (
        f"--- 1 of 2, seed 7 ---\nof 7\n--- 2 of 2, seed {SEEDS[1]} ---\nof {SEEDS[1]}\n"
    )
    assert said.err == ""
    assert run([*ASK, "--n", "2"]) == 0
    assert "all answers are the same" in capsys.readouterr().err


def test_so_many_run_at_once_and_no_more(client: Client) -> None:
    assert run([*ASK, "--n", "8", "--temperature", "1"]) == 0
    assert client.most == alternatives.AT_ONCE
    assert sorted(r.sampling.seed for r in client.requests) == sorted(SEEDS)


def test_one_that_breaks_off_takes_no_other_with_it(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.failing = {SEEDS[1]: [(1, StagesLost("a stage died"))]}
    assert run([*ASK, "--n", "3", "--temperature", "1", "--json"]) == 7
    found = told(capsys)
    assert [choice["finish_reason"] for choice in found["choices"]] == ["stop", "error", "stop"]
    assert found["choices"][1]["text"] == "of "
    client.failing = {SEEDS[1]: [(1, StagesLost("a stage died"))]}
    assert run([*ASK, "--n", "3", "--temperature", "1"]) == 7
    said = capsys.readouterr()
    assert f"of \n--- 3 of 3, seed {SEEDS[2]} ---\nof {SEEDS[2]}\n" in said.out
    assert "(2 broke off: a stage died)\n" in said.err


def test_one_that_found_no_room_is_asked_for_again_later(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.failing = {SEEDS[0]: [(0, Refused("no room", "memory"))]}
    assert run([*ASK, "--n", "2", "--temperature", "1", "--json"]) == 0
    assert told(capsys)["text"] == "of 7"
    client.failing = {seed: [(0, Refused("no room", "memory"))] for seed in SEEDS[:2]}
    assert run([*ASK, "--n", "2", "--temperature", "1", "--json"]) == 6
    assert len(client.requests) == 3 + 2
