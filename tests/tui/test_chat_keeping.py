"""The conversation in the archive: what is kept when, and what is left after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_chat_flows import answer, say, talk, told
from tui_driver import ask, idle, ready, running, screen_text, shown, until
from tui_fakes import Node
from tui_terminal import Terminal

from diffuse_core.domain.view import Failed, TextDelta
from diffuse_tui.archive.store import Archive
from diffuse_tui.widgets import chat_pane
from diffuse_tui.widgets.chat_pane import ChatPane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from diffuse_tui.presenter.dialogue import Dialogue


@pytest.fixture
def archive() -> Iterator[Archive]:
    opened = Archive()
    yield opened
    opened.close()


def pane_of(pilot: Pilot[None]) -> ChatPane:
    return pilot.app.query_one(ChatPane)


def kept(archive: Archive) -> Dialogue:
    dialogue = archive.latest()
    assert dialogue is not None
    return dialogue


def turns(archive: Archive) -> list[tuple[str, str, str]]:
    return [(turn.question, turn.answer, turn.state) for turn in kept(archive).turns]


async def test_a_question_is_kept_before_its_answer_and_the_answer_as_it_grows(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_pane, "KEEP_S", 0.05)
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        pane_of(pilot).use_archive(archive)
        await say(pilot, "/system Be brief")
        await say(pilot, "/rename My talk")
        assert archive.latest() is None
        await ask(pilot, fake, "one")
        assert turns(archive) == [("one", "", "streaming")]
        assert (kept(archive).title, kept(archive).system) == ("My talk", "Be brief")
        fake.generations[0].events.put_nowait(TextDelta("half an"))
        await until(pilot, lambda: turns(archive) == [("one", "half an", "streaming")])
        await answer(pilot, fake, " answer")
        assert turns(archive) == [("one", "half an answer", "done")]
        assert "12.5 tokens/s" in kept(archive).turns[0].note
        await ask(pilot, fake, "two")
        await pilot.press("escape")
        await until(pilot, idle(pilot))
        await ask(pilot, fake, "three")
        await answer(pilot, fake, "x", Failed("lost", 7))
        assert turns(archive)[1:] == [("two", "", "stopped"), ("three", "x", "failed")]
        await say(pilot, "/set top-k 3")
        assert kept(archive).params.top_k == 3
        assert pane_of(pilot).dialogue_id == kept(archive).id
        # What is asked anew is in the file what it is on the screen.
        await say(pilot, "/regenerate")
        await until(pilot, lambda: len(fake.generations) == 4)
        assert turns(archive)[2] == ("three", "x", "failed")
        await answer(pilot, fake, "new")
        assert turns(archive)[2] == ("three", "new", "done")
        await pilot.press("escape", "u")
        assert turns(archive)[2] == ("three", "x", "failed")


async def test_another_conversation_begins_and_one_is_gone_on_with(archive: Archive) -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "before there was an archive")
        await answer(pilot, fake, "0")
        pane_of(pilot).use_archive(archive)
        await say(pilot, "/set top-k 3")
        await ask(pilot, fake, "one")
        assert pane_of(pilot).open_dialogue(kept(archive)) is False
        await answer(pilot, fake, "1")
        assert [turn[0] for turn in turns(archive)] == ["before there was an archive", "one"]
        first = kept(archive)
        await pilot.press("ctrl+n")
        await told(pilot, "a new conversation · F8: earlier ones")
        assert pane_of(pilot).dialogue() is None
        await ask(pilot, fake, "a second talk")
        await answer(pilot, fake, "2")
        assert len(archive.heads()) == 2
        assert pane_of(pilot).open_dialogue(first)
        await shown(pilot, "before there was an archive")
        assert "top-k 3" in str(pane_of(pilot).border_subtitle)
        assert "a second talk" not in screen_text(pilot)
        await ask(pilot, fake, "three")
        assert [m.content for m in fake.generations[-1].request.messages][:2] == [
            "before there was an archive",
            "0",
        ]
        await answer(pilot, fake, "3")
        assert kept(archive).id == first.id
        assert len(kept(archive).turns) == 3
        whole = pane_of(pilot).dialogue()
        assert whole is not None
        assert (whole.id, whole.title, len(whole.turns)) == (first.id, first.title, 3)
        # Renamed in the list of conversations.
        archive.set_title(first.id, "Renamed", 9.0)
        assert pane_of(pilot).dialogue().title == "Renamed"
        pane_of(pilot).forgotten(first.id)
        assert talk(pilot) == []
        assert pane_of(pilot).dialogue_id is None


async def test_leaving_in_the_middle_of_an_answer_keeps_it(tmp_path: Path) -> None:
    there = Node()
    file = tmp_path / "conversations.db"
    async with running(there, history=file) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "one")
        fake.generations[0].events.put_nowait(TextDelta("half"))
        await shown(pilot, "half▍")
    archive = Archive(file)
    try:
        # It was left in order, so the next start shows it only when asked to.
        assert archive.cut == 0
        assert turns(archive) == [("one", "half", "stopped")]
    finally:
        archive.close()


SCRIPT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, "tests/tui")
from tui_fakes import FakeAttachment, served
from diffuse_core.domain.view import TextDelta
from diffuse_tui.app import DiffuseApp

class Attachment(FakeAttachment):
    async def generate(self, request):
        for number in range(10**6):
            yield TextDelta(f"word{number} ")
            await asyncio.sleep(0.05)

async def attach():
    attachment = Attachment()
    attachment.show(served())
    return attachment

DiffuseApp(attach, history=Path(sys.argv[1])).run()
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_killed_app_loses_at_most_the_last_second(tmp_path: Path) -> None:
    file = tmp_path / "conversations.db"
    child = Terminal("-c", SCRIPT, str(file))
    try:
        child.read_until(b"attached")
        child.key(b"Tell me a story\r")
        child.read_until(b"word60")
    finally:
        child.close()
    seen = max(int(n) for n in _numbers(child.output))
    archive = Archive(file)
    try:
        there = Node()
        async with running(there) as pilot:
            fake = await ready(pilot, there)
            pane_of(pilot).use_archive(archive)
            [(question, left)] = talk(pilot)
            assert question == "Tell me a story"
            # Words come 20 a second; a second and a bit for the drawing are 30.
            assert seen - left.count(" ") <= 30
            assert left.count(" ") > 20
            await shown(pilot, "cut: the app ended")
            await told(pilot, "R asks anew")
            await pilot.press("escape", "R")
            await until(pilot, lambda: len(fake.generations) == 1)
            assert fake.generations[0].request.messages[-1].content == question
            # Until the new answer begins the one that was cut stays in the file.
            assert turns(archive)[0][2] == "cut"
            await answer(pilot, fake, "Once upon a time")
            assert turns(archive) == [(question, "Once upon a time", "done")]
    finally:
        archive.close()
    # A start after an orderly end begins afresh.
    archive = Archive(file)
    try:
        async with running(Node()) as pilot:
            pane_of(pilot).use_archive(archive)
            assert talk(pilot) == []
    finally:
        archive.close()


def _numbers(output: bytes) -> list[bytes]:
    import re

    return re.findall(rb"word(\d+) ", output)
