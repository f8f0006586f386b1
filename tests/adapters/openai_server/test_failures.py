"""What fails on the network, what the server itself refuses, and what becomes of streams then."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from diffuse_core.adapters.openai_server import ApiError, ApiLimits, rendered
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Failed, Healed, RouteStep, Waiting
from diffuse_core.errors import (
    ChannelClosed,
    DiffuseError,
    ModelIncomplete,
    ModelUnusable,
    PromptTooLong,
    Refused,
    StagesLost,
    Unreachable,
    UsageError,
)
from tests.adapters.openai_server.fake_answers import ROUTE, FakeAnswers, model
from tests.adapters.openai_server.web import CHAT, Web
from tests.services.waiting import until

CANARY = "the canary sings at dawn"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("w"), 400, "invalid_value"),
        (PromptTooLong("w"), 400, "context_length_exceeded"),
        (ModelUnusable("w"), 503, "model_unusable"),
        (ModelIncomplete("w"), 503, "model_incomplete"),
        (Unreachable("w"), 503, "unreachable"),
        (ChannelClosed("w"), 503, "unreachable"),
        (Refused("w", "busy"), 429, "rate_limit_exceeded"),
        (Refused("w", "memory"), 429, "rate_limit_exceeded"),
        (Refused("w", "context"), 400, "context_length_exceeded"),
        (Refused("w", "leaving"), 503, "refused"),
        (StagesLost("w"), 503, "stages_lost"),
        (DiffuseError("w"), 500, "internal_error"),
    ],
)
async def test_a_failure_has_its_status(
    error: DiffuseError, status: int, code: str, stream: bool
) -> None:
    told = await Web(FakeAnswers(fails=error, after=-1)).chat(stream=stream)
    assert (told.status, told.error["code"], told.error["message"]) == (status, code, "w")
    retry = status == 429 or code not in ("invalid_value", "model_unusable", "internal_error")
    assert ("retry-after" in told.headers) == (retry and status != 400)
    assert ("x-should-retry" in told.headers) == (status >= 500 and not retry)


async def test_a_failure_in_the_middle_of_a_stream_is_an_event_and_there_is_no_end() -> None:
    told = await Web(FakeAnswers(fails=StagesLost("stage x died"), after=2)).chat(stream=True)
    assert told.status == 200
    assert told.complete
    assert "[DONE]" not in told.body.decode()
    *chunks, last = told.chunks()
    assert last["error"]["code"] == "stages_lost"
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == [
        "",
        "Hello",
        " wor",
    ]


async def test_a_stage_that_is_replaced_is_waited_for_and_told_in_comments_only() -> None:
    lost = RouteStep("33" * 32, Slice(4, 7))
    answers = FakeAnswers(
        between=(
            Waiting(lost=lost, why="it is gone", seconds=20.0),
            Healed(lost=lost, why="gone", replaced_by=ROUTE[1:], seconds=2.0, route=ROUTE[:1]),
        )
    )
    told = await Web(answers).chat(stream=True)
    comments = [line for line in told.lines() if line.startswith(":")]
    assert comments == [": layers 4:7 were lost; waiting up to 20 s for a host"]
    deltas = [chunk["choices"][0]["delta"] for chunk in told.chunks()]
    assert "".join(d.get("content", "") for d in deltas) == "Hello world"
    whole = await Web(answers).chat()
    assert whole.json()["choices"][0]["message"]["content"] == "Hello world"


@pytest.mark.parametrize(
    ("exit_code", "status", "code"),
    [(2, 400, "invalid_value"), (5, 503, "unreachable"), (99, 500, "internal_error")],
)
async def test_a_node_that_tells_its_owner_of_a_failure_is_understood(
    exit_code: int, status: int, code: str
) -> None:
    class Owned(FakeAnswers):
        async def _events(self, request: object) -> Any:
            yield Failed("no way", exit_code)

    told = await Web(Owned()).chat()
    assert (told.status, told.error["code"]) == (status, code)


async def test_a_generation_that_ends_without_a_word_is_lost() -> None:
    class Silent(FakeAnswers):
        async def _events(self, request: object) -> Any:
            for event in ():
                yield event

    told = await Web(Silent()).chat()
    assert (told.status, told.error["code"]) == (503, "stages_lost")


@pytest.mark.parametrize("path", ["chat", "text"])
async def test_an_unknown_model_is_not_found(path: str) -> None:
    told = await getattr(Web(FakeAnswers()), path)(model="nope")
    assert told.status == 404
    assert told.error["code"] == "model_not_found"
    assert told.error["param"] == "model"
    assert "tiny" in told.error["message"]


async def test_a_prompt_that_is_too_long_names_where_it_was_given() -> None:
    web = Web(FakeAnswers(fails=PromptTooLong("w"), after=-1))
    assert (await web.chat()).error["param"] == "messages"
    assert (await web.text()).error["param"] == "prompt"
    assert (await web.text(stream=True)).error["param"] == "prompt"


async def test_an_incomplete_model_names_its_ranges() -> None:
    told = await Web(FakeAnswers()).chat(model="half")
    assert told.status == 503
    assert "layers 2:5 of 10" in told.error["message"]
    assert int(told.headers["retry-after"]) > 0


async def test_models_are_listed_under_names_that_can_be_sent_back() -> None:
    answers = FakeAnswers(
        models=(
            model(),
            model("org/big"),
            model("two", "1" * 64),
            model("two", "2" * 64),
            model("half", missing=(Slice(0, 1),)),
            model("tiny", "3" * 64, missing=(Slice(0, 1),)),
        )
    )
    web = Web(answers)
    told = (await web.get("/v1/models")).json()
    names = [each["id"] for each in told["data"]]
    assert names == ["org/big", "tiny", "two", f"two@{'1' * 64}", f"two@{'2' * 64}"]
    first = told["data"][0]
    assert (first["object"], first["owned_by"]) == ("model", "diffuse")
    assert isinstance(first["created"], int)
    assert (first["context_length"], first["layers"], first["contract"]) == (128, 10, "bf16")
    for name in names:
        one = await web.get(f"/v1/models/{name}")
        assert one.json()["id"] == name
        asked = await web.chat(model=name)
        assert asked.status == 200
        assert answers.requests[-1].model.startswith(name)
    assert (await web.get("/v1/models/nope")).error["code"] == "model_not_found"
    half = await web.get("/v1/models/half")
    assert (half.status, half.error["code"]) == (503, "model_incomplete")


async def test_other_paths_and_methods_are_refused_in_shape() -> None:
    web = Web(FakeAnswers())
    nowhere = await web.post("/v1/embeddings", {})
    assert nowhere.status == 404
    assert "/v1/embeddings" in nowhere.error["message"]
    wrong = await web.get(CHAT)
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_a_defect_is_told_without_details_and_logged_without_what_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    web = Web(FakeAnswers(fails=ValueError(CANARY), after=-1))
    told = await web.chat(messages=[{"role": "user", "content": CANARY}])
    assert told.status == 500
    assert CANARY not in told.body.decode()
    assert "fake_answers.py" in caplog.text
    assert CANARY not in caplog.text
    streamed = await Web(FakeAnswers(fails=ValueError(CANARY), after=1)).chat(stream=True)
    assert streamed.chunks()[-1]["error"]["code"] == "internal_error"
    assert CANARY not in streamed.body.decode() + caplog.text


async def test_prompts_and_answers_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web = Web(FakeAnswers(says=(CANARY,)))
    await web.chat(messages=[{"role": "user", "content": CANARY}], stream=True)
    await web.text(prompt=CANARY, top_p=7)
    assert CANARY not in caplog.text


async def test_those_who_come_when_all_is_taken_wait_and_others_are_refused_at_once() -> None:
    answers = FakeAnswers(gate=asyncio.Event())
    web = Web(answers, ApiLimits(at_once=1, waiting=1, wait_s=15))
    assert answers.gate is not None
    first = asyncio.create_task(web.chat())
    await until(lambda: answers.running == 1)
    second = asyncio.create_task(web.chat())
    async with asyncio.timeout(5):
        await asyncio.sleep(0)
        at_once = await web.chat(n=2)
    assert (at_once.status, at_once.error["type"]) == (429, "rate_limit_error")
    assert int(at_once.headers["retry-after"]) > 0
    answers.gate.set()
    assert (await first).status == (await second).status == 200


async def test_nobody_waits_for_ever() -> None:
    answers = FakeAnswers(gate=asyncio.Event())
    web = Web(answers, ApiLimits(at_once=1, wait_s=0.02))
    assert answers.gate is not None
    first = asyncio.create_task(web.chat())
    await until(lambda: answers.running == 1)
    assert (await web.chat()).status == 429
    answers.gate.set()
    assert (await first).status == (await web.chat()).status == 200


async def test_room_that_was_taken_is_given_back_however_it_ended() -> None:
    answers = FakeAnswers()
    web = Web(answers, ApiLimits(at_once=3, waiting=1, wait_s=0.05))
    for _ in range(4):
        assert (await web.chat(n=5)).status == 200
        answers.fails = StagesLost("gone")
        assert (await web.chat(n=5)).status == 503
        answers.fails = None
    answers.most = 0
    assert (await web.chat(n=5)).status == 200
    assert answers.most == 3


async def test_choices_run_beside_each_other_only_where_nobody_else_would() -> None:
    answers = FakeAnswers()
    told = await Web(answers, ApiLimits(at_once=2)).chat(n=5)
    assert told.status == 200
    assert answers.most == 2
    alone = FakeAnswers()
    assert (await Web(alone, ApiLimits(at_once=1)).chat(n=3)).status == 200
    assert alone.most == 1


async def test_a_choice_without_room_on_the_hosts_is_asked_for_again() -> None:
    answers = FakeAnswers(refuse_beyond=1, refusal=Refused("no memory", "memory"))
    told = await Web(answers).chat(n=4, seed=1)
    assert told.status == 200, told.body
    assert [c["message"]["content"] for c in told.json()["choices"]] == ["Hello world"] * 4
    none = FakeAnswers(refuse_beyond=0, refusal=Refused("no memory", "memory"))
    assert (await Web(none).chat(n=4)).status == 429
    assert none.running == 0


def test_what_others_refuse_is_in_the_same_shape() -> None:
    status, headers, body = rendered(ApiError(401, "send the key as `Authorization: Bearer KEY`"))
    assert status == 401
    assert (b"www-authenticate", b"Bearer") in headers
    assert b'"code":"invalid_api_key"' in body
