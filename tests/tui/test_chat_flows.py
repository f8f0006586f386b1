"""Conversations as a user has them: regenerate, edit, system prompt, settings, models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Static
from tui_driver import ask, idle, ready, running, screen_text, shown, until
from tui_fakes import MODEL, PRINT, Node, finished, model, network, node, served

from diffuse_core.domain.view import Failed, RouteChosen, StageTiming, TextDelta
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from tui_fakes import FakeAttachment

    from diffuse_core.domain.view import GenerateEvent, NetworkView


def last(fake: FakeAttachment) -> list[tuple[str, str]]:
    """The messages of the newest request."""
    return [(m.role, m.content) for m in fake.generations[-1].request.messages]


async def answer(pilot: Pilot[None], fake: FakeAttachment, *events: GenerateEvent | str) -> None:
    """Let the newest generation give these events and end."""
    for event in events:
        given = TextDelta(event) if isinstance(event, str) else event
        fake.generations[-1].events.put_nowait(given)
    if not any(isinstance(event, Failed) for event in events):
        fake.generations[-1].events.put_nowait(finished())
    fake.generations[-1].events.put_nowait(None)
    await until(pilot, idle(pilot))


async def say(pilot: Pilot[None], text: str) -> None:
    """Send `text` from the prompt."""
    prompt = pilot.app.query_one(Prompt)
    prompt.focus()
    prompt.put(text)
    await pilot.press("enter")
    await pilot.pause()


async def told(pilot: Pilot[None], text: str) -> None:
    """Wait for `text` in the line above the prompt or between the turns, however it wraps."""
    places = lambda: pilot.app.query("#note, .switch").results(Static)  # noqa: E731
    await until(pilot, lambda: any(text in str(place.visual) for place in places()))


def talk(pilot: Pilot[None]) -> list[tuple[str, str]]:
    turns = pilot.app.query_one(ChatPane).talk.turns
    return [(turn.question, turn.answer) for turn in turns]


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_answering_anew_and_the_version_before(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(served())
        fake = there.first
        await shown(pilot, "Fragile")
        prompt = pilot.app.query_one(Prompt)
        await pilot.press("escape", "R")
        await shown(pilot, "nothing to answer anew yet")
        await ask(pilot, fake, "Capital of France?")
        await pilot.press("escape")
        await until(pilot, idle(pilot))
        # Stopped before the first word; asked anew it is.
        await pilot.press("escape", "R")
        await until(pilot, lambda: len(fake.generations) == 2)
        assert last(fake) == [("user", "Capital of France?")]
        await answer(pilot, fake, "It is Lyon.")
        await pilot.press("R")
        await until(pilot, lambda: len(fake.generations) == 3)
        assert last(fake) == [("user", "Capital of France?")]
        await pilot.press("R")
        await shown(pilot, "press Esc first")
        await answer(pilot, fake, "It is Paris.")
        await shown(pilot, "It is Paris.")
        assert "Lyon" not in screen_text(pilot)
        await pilot.press("u")
        await shown(pilot, "It is Lyon.")
        assert "Paris" not in screen_text(pilot)
        assert talk(pilot) == [("Capital of France?", "It is Lyon.")]
        # Nothing comes of the third: the one that was shown is back.
        await pilot.press("R")
        await until(pilot, lambda: len(fake.generations) == 4)
        assert "Lyon" not in screen_text(pilot)
        await answer(pilot, fake, Failed("layers 0:15 were lost", 7))
        await told(pilot, "not answered anew: layers 0:15 were lost · the earlier answer is back")
        await shown(pilot, "It is Lyon.")
        assert prompt.text == ""
        await ask(pilot, fake, "And Spain?")
        assert last(fake)[1] == ("assistant", "It is Lyon.")


async def test_editing_the_last_question() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = pilot.app.query_one(Prompt)
        await pilot.press("escape", "E")
        await shown(pilot, "no question to edit yet")
        await ask(pilot, fake, "one")
        await answer(pilot, fake, "first")
        await ask(pilot, fake, "two")
        await answer(pilot, fake, "second")
        prompt.put("a draft")
        await pilot.press("escape", "E")
        await shown(pilot, "editing the last question")
        assert prompt.text == "two"
        assert prompt.has_focus
        await pilot.press("x", "escape")
        assert prompt.text == "a draft"
        assert talk(pilot) == [("one", "first"), ("two", "second")]
        # What was typed meanwhile is not lost either.
        await pilot.press("up")
        assert prompt.text == "twox"
        await pilot.press("down", "escape", "E")
        assert prompt.text == "two"
        prompt.put("three")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 3)
        assert last(fake) == [("user", "one"), ("assistant", "first"), ("user", "three")]
        await answer(pilot, fake, "third")
        assert talk(pilot) == [("one", "first"), ("three", "third")]
        assert "second" not in screen_text(pilot)
        await pilot.press("escape", "u")
        assert talk(pilot) == [("one", "first"), ("two", "second")]
        await shown(pilot, "second")


async def test_a_failed_edit_loses_nothing() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "one")
        await answer(pilot, fake, "first")
        await say(pilot, "/edit")
        prompt = pilot.app.query_one(Prompt)
        prompt.put("another")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 2)
        await answer(pilot, fake, Failed("lost", 7))
        assert talk(pilot) == [("one", "first")]
        assert prompt.text == "another"
        await told(pilot, "the earlier answer is back")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 3)
        assert last(fake) == [("user", "another")]
        await answer(pilot, fake, "second")
        assert talk(pilot) == [("another", "second")]


async def test_the_system_prompt_and_settings_travel_along() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        pane = pilot.app.query_one(ChatPane)
        prompt = pilot.app.query_one(Prompt)
        await say(pilot, "/system Answer in [French].")
        await shown(pilot, "system prompt set")
        await say(pilot, "/set temperature 0.7")
        await say(pilot, "/params top-p 0.9 seed 5 max-tokens 99")
        await shown(pilot, "temperature 0.7 · top-p 0.9 · seed 5")
        assert "system prompt" in str(pane.border_subtitle)
        await ask(pilot, fake, "Hello")
        request = fake.generations[0].request
        assert last(fake) == [("system", "Answer in [French]."), ("user", "Hello")]
        assert (request.sampling.temperature, request.sampling.seed) == (0.7, 5)
        assert request.max_tokens == 99
        await answer(pilot, fake, "Bonjour")
        await shown(pilot, "seed 5")
        # What is wrong is told and kept.
        await say(pilot, "/set temperature hot")
        await shown(pilot, "temperature must be 0 to 100")
        assert prompt.text == "/set temperature hot"
        await say(pilot, "/params seed")
        await shown(pilot, "give each name its value")
        await say(pilot, "/system " + "x" * 100_001)
        await shown(pilot, "too long: at most 100,000")
        assert pane.talk.system == "Answer in [French]."
        # Without a seed of its own each answer has another.
        await say(pilot, "/set seed none")
        await say(pilot, "/system")
        seeds = set()
        for _ in range(2):
            await ask(pilot, fake, "Hello")
            seeds.add(fake.generations[-1].request.sampling.seed)
            assert last(fake)[0] == ("user", "Hello")
            await answer(pilot, fake, "x")
        assert len(seeds) == 2
        # A new conversation begins with none of it.
        await say(pilot, "/new")
        await ask(pilot, fake, "Hello")
        assert fake.generations[-1].request.sampling.temperature == 0.0


async def test_a_long_conversation_goes_on_without_its_oldest_turns() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        long = "q" * 3_000
        await ask(pilot, fake, long)
        await answer(pilot, fake, RouteChosen(finished().route, 900), "a")
        await ask(pilot, fake, "next")
        assert last(fake) == [("user", long), ("assistant", "a"), ("user", "next")]
        await answer(pilot, fake, RouteChosen(finished().route, 3_000), "b")
        # There a token had one character: of 2,048 positions half are for what was said.
        await ask(pilot, fake, "last")
        assert last(fake) == [("user", "next"), ("assistant", "b"), ("user", "last")]
        await answer(pilot, fake, "c")
        await shown(pilot, "the oldest 1 turn did not fit")


def two_models(*, first: bool = True) -> NetworkView:
    view = network(node(1, (0, 30)), node(2, (0, 30), me=True))
    second = model(view.nodes[:1], id="other-model", fingerprint="cd" * 32)
    return view if not first else _with(view, (*view.models, second))


def _with(view: NetworkView, models: tuple[object, ...]) -> NetworkView:
    import msgspec

    return msgspec.structs.replace(view, models=models)


@pytest.mark.slow
async def test_another_model_answers_from_here_on() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = there.first
        both = two_models()
        fake.show(both)
        await shown(pilot, "● attached")
        await ask(pilot, fake, "Hello")
        assert fake.generations[0].request.model.startswith(MODEL)
        await answer(pilot, fake, "one")
        await say(pilot, "/model nothing")
        await shown(pilot, "no model here is nothing")
        await say(pilot, "/model other")
        await shown(pilot, "── from here on: other-model ──")
        await ask(pilot, fake, "Again")
        assert fake.generations[1].request.model.startswith("other-model@")
        await answer(pilot, fake, "two")
        # A conversation that is opened again is gone on with by its model.
        pane = pilot.app.query_one(ChatPane)
        kept = pane.dialogue()
        assert kept is not None
        await say(pilot, "/new")
        await say(pilot, f"/model {MODEL.upper()}@{PRINT[:6]}")
        pane.open_dialogue(kept)
        await ask(pilot, fake, "Once more")
        assert fake.generations[-1].request.model.startswith("other-model@")
        await answer(pilot, fake, "two")
        # That one goes away: nothing is sent to the other before the user says so twice.
        fake.show(_with(both, both.models[:1]))
        await told(pilot, f"other-model is not there any more · from here on: {MODEL}")
        await say(pilot, "Third")
        await told(pilot, f"once more asks {MODEL}")
        assert pilot.app.query_one(Prompt).text == "Third"
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 4)
        assert fake.generations[3].request.model.startswith(MODEL)
        await answer(pilot, fake, "three")
        # All are gone.
        fake.show(_with(both, ()))
        await shown(pilot, "No model")
        await say(pilot, "Fourth")
        await told(pilot, "not sent: no host on this network holds one")
        assert pilot.app.query_one(Prompt).text == "Fourth"


async def test_keys_of_the_conversation_scroll_and_copy() -> None:
    there = Node()
    async with running(there, (80, 24)) as pilot:
        there.first.show(served())
        await shown(pilot, "Fragile")
        for number in range(3):
            await ask(pilot, there.first, f"question {number}")
            code = f"Text\n\n```py\ncode{number} = 1\n```\n" + "line\n\n" * 12
            await answer(pilot, there.first, code)
        await pilot.press("escape")
        view = pilot.app.query_one("#conversation")
        await until(pilot, lambda: view.max_scroll_y > 0 and view.scroll_y == view.max_scroll_y)
        end = view.scroll_y
        await pilot.press("k", "k")
        await until(pilot, lambda: view.scroll_y == end - 2)
        await pilot.press("j")
        await until(pilot, lambda: view.scroll_y == end - 1)
        await pilot.press("ctrl+u")
        await until(pilot, lambda: view.scroll_y < end - 4)
        await pilot.press("g")
        await until(pilot, lambda: view.scroll_y == 0)
        await pilot.press("J")
        await shown(pilot, "question 1")
        here = view.scroll_y
        assert here > 0
        await pilot.press("K")
        await until(pilot, lambda: view.scroll_y < here)
        await pilot.press("ctrl+d", "G")
        await until(pilot, lambda: view.scroll_y == view.max_scroll_y)
        await pilot.press("Y")
        assert pilot.app.clipboard == "code2 = 1"
        # Letters are text while one types; the line of what can be done says how they are not.
        deeds = "R anew · E edit · y copy · v times"
        await pilot.press("c")
        await shown(pilot, f"Esc, then {deeds}")
        await pilot.press("escape")
        await shown(pilot, f"│  {deeds}")
        # By mouse as well.
        await pilot.click("#deeds", offset=(2, 0))
        await until(pilot, lambda: len(there.first.generations) == 4)
        assert "R anew" not in screen_text(pilot)
        await answer(pilot, there.first, "Text")
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("Text")


async def test_the_settings_and_the_waterfall_open_from_the_chat() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await pilot.press("escape", "v")
        await shown(pilot, "no times are known of the last answer")
        await ask(pilot, fake, "Hello")
        usual = (StageTiming(1.0, 0.5, 9.0), StageTiming(0.5, 0.0, 10.5))
        await answer(pilot, fake, TextDelta("one", (1,), stages=usual), TextDelta("two", (2,)))
        measured = pilot.app.query_one(ChatPane).times
        assert measured is not None
        assert measured.texts == ["onetwo"]
        await pilot.press("escape", "v")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "WaterfallScreen")
        await pilot.press("escape")
        # Each version has its own times.
        await pilot.press("escape", "R")
        await until(pilot, lambda: len(fake.generations) == 2)
        await answer(pilot, fake, TextDelta("three", (3,), stages=usual))
        assert pilot.app.query_one(ChatPane).times.texts == ["three"]
        await pilot.press("escape", "u")
        assert pilot.app.query_one(ChatPane).times is measured
        await pilot.press("v")
        await shown(pilot, "onetwo")
        await pilot.press("escape")
        await say(pilot, "/params")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "ParametersScreen")
        pilot.app.screen.dismiss((Params(temperature=0.5), "Be brief"))
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await ask(pilot, fake, "Again")
        assert fake.generations[-1].request.sampling.temperature == 0.5
        assert last(fake)[0] == ("system", "Be brief")


async def test_a_long_path_that_is_told_is_told_to_its_end() -> None:
    there = Node()
    async with running(there, (80, 24)) as pilot:
        await ready(pilot, there)
        path = f"/home/someone/{'a-title-of-many-words-' * 6}to-its-end.md"
        pilot.app.query_one(ChatPane).say(f"written to {path}", "good")
        await until(pilot, lambda: path in re.sub(r"[│\s]", "", screen_text(pilot)))
