"""One conversation in two apps, and what the disk did not take: nothing of either is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from test_chat_flows import answer, say, talk, two_models
from tui_archive import put_turn
from tui_driver import ask, ready, running, screen_text, shown, until
from tui_fakes import Node

from diffuse_core.domain.view import TextDelta
from diffuse_tui.archive.store import Archive
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.widgets.chat_pane import ChatPane

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot


def pane_of(pilot: Pilot[None]) -> ChatPane:
    return pilot.app.query_one(ChatPane)


def begun(archive: Archive, *questions: str) -> int:
    number = archive.create("tiny@ab", "Be brief", Params(), 1.0)
    for index, question in enumerate(questions):
        turn = KeptTurn(number=index, question=question, answer="so", state="done", at=index + 1.0)
        put_turn(archive, number, turn, index + 1.0)
    return number


def questions(archive: Archive, number: int) -> list[str]:
    dialogue = archive.load(number)
    assert dialogue is not None
    assert [turn.number for turn in dialogue.turns] == list(range(len(dialogue.turns)))
    return [turn.question for turn in dialogue.turns]


async def test_who_goes_on_second_goes_on_with_a_copy(tmp_path: Path) -> None:
    other = Archive(tmp_path / "chats.db")
    number = begun(other, "first")
    other.set_title(number, "Ours", 2.0)
    there = Node()
    async with running(there, history=tmp_path / "chats.db") as pilot:
        fake = await ready(pilot, there)
        pane = pane_of(pilot)
        dialogue = other.load(number)
        assert dialogue is not None
        pane.open_dialogue(dialogue)
        put_turn(other, number, KeptTurn(number=1, question="theirs", state="done", at=9.0), 9.0)
        await ask(pilot, fake, "mine")
        await shown(pilot, "kept as a copy")
        await answer(pilot, fake, "yes")
        copy = pane.dialogue_id
        assert copy not in (None, number)
        assert questions(other, number) == ["first", "theirs"]
        assert questions(other, copy) == ["first", "mine"]
        kept = other.load(copy)
        assert (kept.title, kept.system) == ("Ours (copy)", "Be brief")
        # From then on in the copy, also when that is deleted elsewhere.
        await ask(pilot, fake, "more")
        await answer(pilot, fake, "yes")
        assert pane.dialogue_id == copy
        assert questions(other, copy) == ["first", "mine", "more"]
        other.delete(copy)
        await pilot.press("f8")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        assert talk(pilot)[-1] == ("more", "yes")
        await say(pilot, "/regenerate")
        await until(pilot, lambda: len(fake.generations) == 3)
        await answer(pilot, fake, "again")
        assert questions(other, pane.dialogue_id) == ["first", "mine", "more"]
        assert pane.dialogue_id != copy
    other.close()


async def test_an_answer_of_another_app_is_not_taken_for_one_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    gone, other = Archive(path), Archive(path)
    left = KeptTurn(number=0, question="left behind", state="streaming")
    put_turn(gone, gone.create("tiny@ab", "", Params(), 1.0), left, 1.0)
    number = other.create("tiny@ab", "", Params(), 2.0)
    put_turn(other, number, KeptTurn(number=0, question="theirs", state="streaming"), 2.0)
    gone._mark.release()
    gone._database.close()
    async with running(Node(), history=path) as pilot:
        await until(pilot, lambda: pilot.app.archive is not None)
        assert pilot.app.archive.cut == 1
        await pilot.pause()
        assert talk(pilot) == []
        assert "theirs" not in screen_text(pilot)
    other.close()


async def test_what_the_disk_did_not_take_is_kept_when_it_does(tmp_path: Path) -> None:
    there = Node()
    async with running(there, history=tmp_path / "chats.db") as pilot:
        fake = await ready(pilot, there)
        archive = pilot.app.archive
        archive._database.execute("PRAGMA query_only = ON")
        await ask(pilot, fake, "first")
        await answer(pilot, fake, "1")
        archive._database.execute("PRAGMA query_only = OFF")
        await ask(pilot, fake, "second")
        await answer(pilot, fake, "2")
        number = pane_of(pilot).dialogue_id
        assert questions(archive, number) == ["first", "second"]
        archive._database.execute("PRAGMA query_only = ON")
        await ask(pilot, fake, "third")
        await answer(pilot, fake, "3")
        archive._database.execute("PRAGMA query_only = OFF")
        await ask(pilot, fake, "fourth")
        fake.generations[-1].events.put_nowait(TextDelta("4"))
        assert questions(archive, number) == ["first", "second", "third", "fourth"]


async def test_a_conversation_with_a_gap_goes_on_behind_its_end(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    other = Archive(path)
    number = begun(other, "first", "lost", "third")
    other._database.execute("DELETE FROM turn WHERE number = 1")
    there = Node()
    async with running(there, history=path) as pilot:
        fake = await ready(pilot, there)
        pane_of(pilot).open_dialogue(other.load(number))
        await ask(pilot, fake, "fourth")
        await answer(pilot, fake, "4")
        assert pane_of(pilot).dialogue_id == number
        assert questions(other, number) == ["first", "third", "fourth"]
        # The newest part of an endless one is gone on with apart from it.
        other._database.execute("UPDATE turn SET number = number + 7")
        pane_of(pilot).open_dialogue(other.load(number))
        await ask(pilot, fake, "fifth")
        await answer(pilot, fake, "5")
        assert questions(other, pane_of(pilot).dialogue_id)[2:] == ["fourth", "fifth"]
        assert len(other.load(number).turns) == 3
    other.close()


async def test_what_a_crash_cut_goes_on_with_its_own_model(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    gone = Archive(path)
    model = f"other-model@{'cd' * 32}"
    number = gone.create(model, "", Params(), 1.0)
    put_turn(gone, number, KeptTurn(number=0, question="q", answer="a", model=model), 1.0)
    gone._mark.release()
    gone._database.close()
    there = Node()
    async with running(there, history=path) as pilot:
        await until(pilot, lambda: pane_of(pilot).dialogue_id == number)
        there.first.show(two_models())
        await shown(pilot, "● attached")
        await ask(pilot, there.first, "more")
        assert there.first.generations[0].request.model == model
        assert "not there any more" not in screen_text(pilot)


async def test_a_copy_is_kept_also_when_the_app_is_left_at_once(tmp_path: Path) -> None:
    other = Archive(tmp_path / "chats.db")
    number = begun(other, "first")
    there = Node()
    async with running(there, history=tmp_path / "chats.db") as pilot:
        fake = await ready(pilot, there)
        pane_of(pilot).open_dialogue(other.load(number))
        await say(pilot, "/regenerate")
        await until(pilot, lambda: len(fake.generations) == 1)
        put_turn(other, number, KeptTurn(number=1, question="theirs", state="done", at=9.0), 9.0)
        fake.generations[0].events.put_nowait(TextDelta("anew"))
        await shown(pilot, "anew▍")
    assert questions(other, number) == ["first", "theirs"]
    [copy] = [head.id for head in other.heads() if head.id != number]
    assert [(turn.answer, turn.state) for turn in other.load(copy).turns] == [("anew", "stopped")]
    other.close()
