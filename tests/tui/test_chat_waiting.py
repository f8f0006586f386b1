"""What waits for an answer, and changing a question while things happen: no text is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_chat_flows import _with, answer, last, say, talk, told, two_models
from textual.app import App
from tui_driver import ask, ready, running, shown, until
from tui_fakes import MODEL, FakeAttachment, Node, finished

from diffuse_core.domain.view import Failed, GenerateRequest, TextDelta
from diffuse_tui.archive.store import Archive
from diffuse_tui.generations import BY_YOU, Generations
from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.message import Message


async def test_what_waits_is_not_sent_after_an_answer_that_failed() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = pilot.app.query_one(Prompt)
        await ask(pilot, fake, "Capital of France?")
        await say(pilot, "How many live there?")
        await answer(pilot, fake, Failed("lost", 7))
        await told(pilot, "what waited was not sent · ↑ recalls it")
        assert prompt.text == "Capital of France?"
        await pilot.press("up")
        assert prompt.text == "How many live there?"
        assert len(fake.generations) == 1
        # Nor after an edit of which nothing came: it would take the edited one's place.
        prompt.put("Capital of France?")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 2)
        await answer(pilot, fake, "Paris")
        await say(pilot, "/edit")
        prompt.put("Capital of Spain?")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 3)
        await say(pilot, "How many live there?")
        await answer(pilot, fake, Failed("lost", 7))
        await told(pilot, "the earlier answer is back")
        assert prompt.text == "Capital of Spain?"
        assert len(fake.generations) == 3
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 4)
        await answer(pilot, fake, "Madrid")
        assert [turn for turn in talk(pilot) if turn[1]] == [("Capital of Spain?", "Madrid")]


async def test_what_is_sent_again_right_after_a_failure_is_asked() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = pilot.app.query_one(Prompt)
        await ask(pilot, fake, "one")
        fake.generations[0].events.put_nowait(Failed("lost", 7))
        # The iterator is not closed yet.
        await until(pilot, lambda: prompt.text == "one")
        await pilot.press("enter")
        await told(pilot, "queued: one")
        fake.generations[0].events.put_nowait(None)
        await until(pilot, lambda: len(fake.generations) == 2)
        assert last(fake) == [("user", "one")]


async def test_what_waits_is_not_sent_to_a_model_that_nobody_chose() -> None:
    there = Node()
    async with running(there) as pilot:
        fake, both = there.first, two_models()
        fake.show(both)
        await shown(pilot, "● attached")
        await say(pilot, "/model other")
        await ask(pilot, fake, "Hello")
        await say(pilot, "Again")
        fake.show(_with(both, both.models[:1]))
        await told(pilot, "other-model is not there any more")
        fake.generations[0].events.put_nowait(TextDelta("Hi"))
        fake.generations[0].events.put_nowait(finished())
        fake.generations[0].events.put_nowait(None)
        await told(pilot, f"once more asks {MODEL}")
        assert pilot.app.query_one(Prompt).text == "Again"
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 2)


async def test_versions_stay_as_they_are_while_a_question_is_edited() -> None:
    there = Node()
    archive = Archive()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        pilot.app.query_one(ChatPane).use_archive(archive)
        prompt = pilot.app.query_one(Prompt)
        await ask(pilot, fake, "one")
        await answer(pilot, fake, "first")
        await say(pilot, "/regenerate")
        await until(pilot, lambda: len(fake.generations) == 2)
        await answer(pilot, fake, "second")
        prompt.put("a draft")
        await pilot.press("escape", "E", "escape")
        await pilot.press("escape", "E")
        prompt.put("another")
        chat = pilot.app.query_one(ChatPane)
        for command in ("other", "regenerate"):
            chat.do(command)
            await told(pilot, "the last question is being edited")
        assert talk(pilot) == [("one", "second")]
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 3)
        assert last(fake) == [("user", "another")]
        # What was typed before the edit is there again.
        assert prompt.text == "a draft"
        # Until the first word comes the answer before is in the file.
        assert archive.latest().turns[0].answer == "second"
        await say(pilot, "/set top-k 7")
        await answer(pilot, fake, Failed("lost", 7))
        assert talk(pilot) == [("one", "second")]
        assert chat.talk.params.top_k == 7
        assert prompt.text == "another"
        await pilot.press("escape", "escape", "u")
        assert talk(pilot) == [("one", "first")]
        assert [turn.answer for turn in archive.latest().turns] == ["first"]
    archive.close()


class Teller(App[None]):
    """Hears what a chat pane would hear."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.failed: list[str] = []

    def compose(self) -> ComposeResult:
        yield from ()

    def post_message(self, message: Message) -> bool:
        if isinstance(message, (ChatPane.Arrived, ChatPane.Ended)):
            self.told.append(type(message).__name__)
            if isinstance(message, ChatPane.Arrived) and isinstance(message.event, Failed):
                self.failed.append(message.event.message)
            return True
        return super().post_message(message)


async def test_a_generation_that_is_stopped_before_it_began_ends_all_the_same() -> None:
    app, fake = Teller(), FakeAttachment()
    async with app.run_test() as pilot:
        generations = Generations(app, lambda: fake)
        generations.start(ChatPane.Ask(app, 1, GenerateRequest(model="m", raw="x")))
        generations.stop()
        await until(pilot, lambda: app.told == ["Ended"])
        await until(pilot, lambda: not generations.busy)


@pytest.mark.parametrize(
    ("code", "ending", "told"),
    [(5, True, BY_YOU), (7, True, BY_YOU), (5, False, "gone"), (6, True, "gone")],
)
async def test_an_answer_that_ends_with_the_host_that_the_user_stops_says_so(
    code: int, ending: bool, told: str
) -> None:
    app, fake = Teller(), FakeAttachment()
    async with app.run_test() as pilot:
        generations = Generations(app, lambda: fake, lambda: ending)
        generations.start(ChatPane.Ask(app, 1, GenerateRequest(model="m", raw="x")))
        await until(pilot, lambda: bool(fake.generations))
        fake.generations[0].events.put_nowait(Failed("gone", code))
        await until(pilot, lambda: app.failed == [told])
