from __future__ import annotations

import pytest
from tui_driver import (
    ask,
    idle,
    ready,
    running,
    screen_text,
    shown,
    turn_feet,
    until,
)
from tui_fakes import Node, finished, network, node, served

from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Audited,
    Comparison,
    Failed,
    Healed,
    RouteChosen,
    RouteStep,
    StageTiming,
    TextDelta,
    Waiting,
)
from diffuse_core.errors import Refused
from diffuse_tui.widgets.prompt import Prompt


async def test_an_answer_streams_and_becomes_markdown() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Capital of France?")
        generation = fake.generations[0]
        assert [m.content for m in generation.request.messages] == ["Capital of France?"]
        step = RouteStep("01" * 32, Slice(0, 30))
        generation.events.put_nowait(RouteChosen((step,), 7))
        await shown(pilot, "7 prompt tokens via 01010101 0:30")
        generation.events.put_nowait(TextDelta("It is **Paris**.\n\nThat is"))
        await shown(pilot, "That is▍")
        assert "It is Paris." in screen_text(pilot)
        generation.events.put_nowait(TextDelta(" all. <b>&[red]"))
        generation.events.put_nowait(finished())
        generation.events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, "That is all. <b>&[red]")
        await shown(pilot, "3 tokens · first after 0.25 s · 12.5 tokens/s")
        await shown(pilot, "via 01010101 0:15 → 02020202 15:30")
        assert generation.closed.is_set()

        await ask(pilot, fake, "And Spain?")
        assert [m.role for m in fake.generations[1].request.messages] == [
            "user",
            "assistant",
            "user",
        ]


def healed(lost: str, other: str) -> Healed:
    step = RouteStep(other * 8, Slice(0, 15))
    return Healed(
        lost=RouteStep(lost * 8, Slice(0, 15)),
        why="its link ended",
        replaced_by=(step,),
        seconds=0.42,
        route=(step, RouteStep("02" * 32, Slice(15, 30))),
    )


LIAR = Audited(
    node="77777777" * 8,
    slice=Slice(10, 20),
    verdict="differs",
    auditors=(Comparison(auditor="02" * 32, agrees=False, difference=0.5),),
    doubtful=("77777777" * 8,),
)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_healed_answer_says_so_and_goes_on(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(served())
        await shown(pilot, "Fragile")
        await ask(pilot, there.first, "Count")
        events = there.first.generations[0].events
        events.put_nowait(TextDelta("one two "))
        lost = healed("1a2b3c4d", "5e6f7a8b")
        events.put_nowait(Waiting(lost=lost.lost, why="its link ended", seconds=10.0))
        await shown(pilot, "… waiting: stage 1a2b3c4d")
        events.put_nowait(lost)
        await shown(pilot, "✚ healed: stage 1a2b3c4d")
        events.put_nowait(healed("5e6f7a8b", "77777777"))
        events.put_nowait(LIAR)
        events.put_nowait(TextDelta("three"))
        await shown(pilot, "one two three▍")
        foot = "\n".join(turn_feet(pilot))
        assert "stage 1a2b3c4d was lost, went on with 5e6f7a8b after 0.4 s" in foot
        assert "stage 5e6f7a8b was lost, went on with 77777777 after 0.4 s" in foot
        assert "audit: stage 77777777 (layers 10:20) did not agree" in foot
        events.put_nowait(finished(events=("stage 1a2b3c4d was lost",)))
        events.put_nowait(None)
        await until(pilot, idle(pilot))
        assert "▲ stage 1a2b3c4d was lost" in "\n".join(turn_feet(pilot))


async def test_the_times_of_the_stages_are_asked_for_and_told() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        for number, tenths in enumerate((400, 300)):
            await ask(pilot, fake, "Count")
            generation = fake.generations[number]
            assert generation.request.timings
            usual = (StageTiming(tenths / 10, 0.02, 9.0), StageTiming(0.5, 0.0, 10.5))
            for _ in range(5 - 3 * number):
                generation.events.put_nowait(TextDelta("one", (1,), stages=usual))
            generation.events.put_nowait(finished())
            generation.events.put_nowait(None)
            await until(pilot, idle(pilot))
            # Of this answer alone, not of the one before.
            told = f"wire {tenths / 10:.1f} · queue 0.02 · compute 9.00 ms"
            assert "\n".join(turn_feet(pilot)).count(told) == 1


async def test_escape_cancels_and_closes_the_iterator() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Count")
        generation = fake.generations[0]
        times = (StageTiming(wire_ms=1.0, queue_ms=0.5, compute_ms=9.0),) * 2
        generation.events.put_nowait(TextDelta("one two", (5,), stages=times))
        generation.events.put_nowait(healed("1a2b3c4d", "5e6f7a8b"))
        await shown(pilot, "one two")
        await pilot.press("escape")
        await until(pilot, generation.closed.is_set)
        await until(pilot, idle(pilot))
        await shown(pilot, "■ stopped")
        feet = "\n".join(turn_feet(pilot))
        assert "via 5e6f7a8b 0:15" in feet
        assert "wire 1.00 · queue 0.50 · compute 9.00 ms" in feet
        assert "✚ healed: stage 1a2b3c4d" in "\n".join(turn_feet(pilot))
        assert pilot.app.query_one(Prompt).text == ""
        await ask(pilot, fake, "Go on")
        assert fake.generations[1].request.messages[1].content == "one two"


@pytest.mark.parametrize(
    "failure",
    [Failed("layers 0:15 were lost; ask again", 7), Refused("layers 0:15 were lost; ask again")],
)
async def test_a_failure_is_shown_and_the_question_kept(failure: Failed | Refused) -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Hello")
        fake.generations[0].events.put_nowait(failure)
        if isinstance(failure, Failed):
            fake.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, "✖ layers 0:15 were lost; ask again")
        assert pilot.app.query_one(Prompt).text == "Hello"
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 2)
        assert len(fake.generations[1].request.messages) == 1


async def test_an_answer_that_just_ends_is_a_failure() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Hello")
        fake.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, "ended without a word why")


async def test_one_question_waits_and_a_second_is_refused() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "first")
        prompt = pilot.app.query_one(Prompt)
        prompt.insert("second")
        await pilot.press("enter")
        await shown(pilot, "queued: second")
        prompt.insert("third")
        await pilot.press("enter")
        await shown(pilot, "one question is queued already")
        assert prompt.text == "third"
        fake.generations[0].events.put_nowait(finished())
        fake.generations[0].events.put_nowait(None)
        await until(pilot, lambda: len(fake.generations) == 2)
        assert fake.generations[1].request.messages[-1].content == "second"
        assert prompt.text == "third"


async def test_stopping_gives_the_queued_question_back() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "first")
        pilot.app.query_one(Prompt).insert("second")
        await pilot.press("enter")
        await pilot.press("escape")
        await until(pilot, idle(pilot))
        assert pilot.app.query_one(Prompt).text == "second"
        assert len(fake.generations) == 1


async def test_a_model_that_is_not_servable_refuses_and_keeps_the_draft() -> None:
    there = Node()
    async with running(there) as pilot:
        there.first.show(network(node(1, (0, 10))))
        await shown(pilot, "Incomplete")
        pilot.app.query_one(Prompt).insert("Hello")
        await pilot.press("enter")
        await shown(pilot, "not sent: layers 10:30 of 30")
        assert pilot.app.query_one(Prompt).text == "Hello"
        assert not there.first.generations


async def test_too_long_a_question_is_refused() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        pilot.app.query_one(Prompt).text = "x" * 200_001
        await pilot.press("enter")
        await shown(pilot, "too long")
        assert not there.first.generations


async def test_up_recalls_and_down_returns_to_the_draft() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        for number, text in enumerate(("one", "two")):
            await ask(pilot, fake, text)
            fake.generations[number].events.put_nowait(finished())
            fake.generations[number].events.put_nowait(None)
            await until(pilot, idle(pilot))
        prompt = pilot.app.query_one(Prompt)
        prompt.insert("draft")
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            seen.append(prompt.text)
        assert seen == ["two", "one", "one", "two", "draft", "draft"]
        await pilot.press("ctrl+j", "x")
        assert prompt.text == "draft\nx"
        await pilot.press("up")
        assert prompt.text == "draft\nx"


async def test_hostile_answers_do_no_harm() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "[bold]x")
        events = fake.generations[0].events
        events.put_nowait(
            TextDelta("\x1b]0;owned\x07\x1b[2J [/red] \ud800 \u202e " + "y" * 100_000)
        )
        events.put_nowait(TextDelta("\n\n" + "- z\n" * 2_000))
        events.put_nowait(finished())
        events.put_nowait(None)
        await until(pilot, idle(pilot))
        text = screen_text(pilot)
        assert "\x1b" not in text
        assert "\ud800" not in text
        assert len(pilot.app.query("*")) < 200


async def test_a_new_conversation_and_copying() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await pilot.press("escape", "y")
        await shown(pilot, "no answer to copy yet")
        await ask(pilot, fake, "one")
        await pilot.press("ctrl+n")
        await shown(pilot, "press Esc first")
        fake.generations[0].events.put_nowait(TextDelta("answer"))
        fake.generations[0].events.put_nowait(finished())
        fake.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        await pilot.press("escape", "y")
        assert pilot.app.clipboard == "answer"
        await pilot.press("ctrl+n")
        await ask(pilot, fake, "two")
        assert len(fake.generations[1].request.messages) == 1


async def test_the_answer_is_seen_at_40_by_12() -> None:
    there = Node()
    async with running(there, (40, 12)) as pilot:
        there.first.show(served())
        await shown(pilot, "Fragile")
        await ask(pilot, there.first, "Capital of France?")
        events = there.first.generations[0].events
        events.put_nowait(RouteChosen((RouteStep("01" * 32, Slice(0, 30)),), 7))
        events.put_nowait(TextDelta("The capital of France is Paris, a city on the Seine."))
        await shown(pilot, "the Seine.▍")
        assert "prompt tokens" not in screen_text(pilot)
        events.put_nowait(finished())
        events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, "3 tok · 1.0 s · 12/s")
        text = screen_text(pilot)
        assert "Capital of France?" in text
        assert "The capital of France is Paris" in text
        assert "via" not in text
        assert "Enter sends ·" not in text
        # What went wrong is always told.
        await ask(pilot, there.first, "And?")
        there.first.generations[1].events.put_nowait(Failed("layers were lost", 7))
        there.first.generations[1].events.put_nowait(None)
        await shown(pilot, "✖ layers were lost")


async def test_the_hint_follows_the_focus() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        await shown(pilot, "Enter sends · Alt+Enter")
        await pilot.press("escape")
        await shown(pilot, "c or F3 to type again")
        assert "Enter sends · Alt+Enter" not in screen_text(pilot)
        await pilot.press("c")
        await shown(pilot, "Enter sends · Alt+Enter")
