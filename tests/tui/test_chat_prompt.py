"""The prompt: commands that complete, long texts as chips, files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_chat_flows import say, told
from textual import events
from tui_driver import ask, idle, ready, running, screen_text, shown, until
from tui_fakes import Node, finished, served

from diffuse_tui.widgets.chat_pane import ChatPane
from diffuse_tui.widgets.completions import Completions
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot


def prompt_of(pilot: Pilot[None]) -> Prompt:
    return pilot.app.query_one(Prompt)


async def paste(pilot: Pilot[None], text: str) -> None:
    prompt = prompt_of(pilot)
    prompt.focus()
    prompt.post_message(events.Paste(text))
    await pilot.pause()


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_commands_complete_as_one_types(size: tuple[int, int]) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(served())
        await shown(pilot, "Fragile")
        prompt = prompt_of(pilot)
        await pilot.press("/")
        await shown(pilot, "› /new")
        assert "/system TEXT" in screen_text(pilot)
        await pilot.press("r", "e")
        await shown(pilot, "› /regenerate")
        await pilot.press("down")
        await shown(pilot, "› /rename TITLE")
        await pilot.press("up", "up", "tab")
        assert prompt.text == "/rename "
        assert prompt.has_focus
        # Esc hides the list and keeps the text; nothing to complete, nothing shown.
        prompt.put("/set te")
        await shown(pilot, "› temperature")
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.query_one(Completions).display)
        assert prompt.has_focus
        assert prompt.text == "/set te"
        await pilot.press("m")
        await pilot.pause()
        assert not pilot.app.query_one(Completions).display


async def test_enter_takes_the_name_that_was_begun() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt = prompt_of(pilot)
        prompt.put("/sto")
        await shown(pilot, "› /stop")
        await pilot.press("enter")
        await told(pilot, "no answer runs")
        assert prompt.text == "/stop"
        prompt.put("/ren")
        await shown(pilot, "› /rename TITLE")
        await pilot.press("enter")
        assert prompt.text == "/rename "
        await pilot.press("enter")
        await told(pilot, "its name? /rename TITLE")
        # Whole names are run, also those after which something may follow.
        prompt.put("/sys")
        await shown(pilot, "› /system TEXT")
        await pilot.press("enter")
        assert prompt.text == "/system "
        prompt.put("/system")
        await pilot.pause()
        await pilot.press("enter")
        await told(pilot, "no system prompt any more")
        prompt.put("/reganerate")
        await pilot.press("enter")
        await told(pilot, "there is no command /reganerate; did you mean /regenerate?")
        assert prompt.text == "/reganerate"
        # Two slashes are a question.
        prompt.put("//etc/hosts")
        await pilot.press("enter")
        await until(pilot, lambda: len(there.first.generations) == 1)
        assert there.first.generations[0].request.messages[-1].content == "/etc/hosts"


async def test_a_click_completes() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt_of(pilot).put("/e")
        await shown(pilot, "› /edit")
        await pilot.click(Completions, offset=(4, 1))
        assert prompt_of(pilot).text == "/export "
        await until(pilot, lambda: prompt_of(pilot).has_focus)


async def test_what_commands_open() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        for command, screen in (("/help", "HelpScreen"), ("/model", "ModelScreen")):
            await say(pilot, command)
            await until(pilot, lambda name=screen: type(pilot.app.screen).__name__ == name)
            await pilot.press("escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await say(pilot, "/export md")
        await told(pilot, "nothing to export yet")
        await say(pilot, "/export")
        await told(pilot, "export as what?")
        await say(pilot, "/copy all")
        await told(pilot, "copy what?")


async def test_a_long_paste_is_a_chip_that_is_sent_in_full() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = prompt_of(pilot)
        await paste(pilot, "short\r\npaste")
        assert prompt.text == "short\npaste"
        prompt.clear()
        prompt.insert("See ")
        long = "\n".join(f"line {n}" for n in range(312))
        await paste(pilot, long)
        label = "[pasted 312 lines, 2.6 KiB]"
        assert prompt.text == f"See {label} "
        await pilot.press(*"and")
        assert label in screen_text(pilot)
        await shown(pilot, "Enter sends 2,7")
        # Removed as one, brought back, typed into: it stays whole.
        await pilot.press("backspace", "backspace", "backspace", "backspace", "backspace")
        assert prompt.text == "See "
        await pilot.press("ctrl+z")
        assert label in prompt.text
        prompt.move_cursor((0, 8))
        prompt.insert("x")
        assert prompt.text.startswith(f"See {label}x")
        prompt.text = f"See {label}"
        prompt.select_all()
        await pilot.press("delete")
        assert prompt.text == ""
        prompt.put(f"See {label}")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 1)
        assert fake.generations[0].request.messages[-1].content == f"See {long}"
        fake.generations[0].events.put_nowait(finished())
        fake.generations[0].events.put_nowait(None)
        await until(pilot, idle(pilot))
        await pilot.press("up")
        assert prompt.text == f"See {label}"
        prompt.clear()
        await pilot.press("escape", "E")
        await until(pilot, lambda: prompt.text == f"See {label}")
        await pilot.press("ctrl+o")
        assert prompt.text == f"See {long}"


async def test_keys_that_take_the_last_line_whole() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt = prompt_of(pilot)
        await paste(pilot, "\n".join(f"line {n}" for n in range(312)))
        label = prompt.text.strip()
        for text in (label, f"first\nSee {label}", ""):
            for key in ("ctrl+k", "ctrl+shift+k", "ctrl+x"):
                prompt.put(text)
                await pilot.press(key)
                assert prompt.text.strip() in {"", "first"} or key == "ctrl+k"


async def test_more_than_a_question_holds_is_refused_kindly() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt = prompt_of(pilot)
        prompt.insert("draft ")
        await paste(pilot, "x" * 1_000_000)
        await told(pilot, "not pasted: 1,000,000 characters")
        assert prompt.text == "draft "
        for _ in range(2):
            await paste(pilot, "y" * 150_000)
        await told(pilot, "too long: 300,00")
        await pilot.press("enter")
        await told(pilot, "too long: at most 200,000 characters")
        assert prompt.text.count("[pasted") == 2
        assert not there.first.generations
        await pilot.press("ctrl+o")
        await told(pilot, "too long to be edited here")
        await paste(pilot, "z\x1b[2J")
        assert prompt.text.endswith("z␛[2J")


async def test_files_are_attached_by_completed_paths(tmp_path: Path) -> None:
    there = Node()
    (tmp_path / "notes [1].txt").write_text("alpha\n```\nbeta\n")
    (tmp_path / "novel").mkdir()
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "binary").write_bytes(b"\0\1\2" * 100)
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = prompt_of(pilot)
        prompt.focus()
        prompt.put(f"/attach {tmp_path}/no")
        completions = pilot.app.query_one(Completions)
        await until(pilot, lambda: len(completions.offered) == 2)
        assert completions.offered[1].text == f"/attach {tmp_path}/novel/"
        await pilot.press("tab")
        assert prompt.text == f"/attach {tmp_path}/notes [1].txt"
        await pilot.press("enter")
        await until(pilot, lambda: "[file notes _1_.txt" in prompt.text)
        prompt.insert("What is it?")
        await pilot.press("enter")
        await until(pilot, lambda: len(fake.generations) == 1)
        sent = fake.generations[0].request.messages[-1].content
        assert sent == "\nnotes [1].txt:\n````\nalpha\n```\nbeta\n````\n What is it?"
        await say(pilot, f"/attach {tmp_path}/binary")
        await until(pilot, lambda: prompt.text != "")
        assert prompt.text == f"/attach {tmp_path}/binary"
        await say(pilot, f"/attach {tmp_path}/none")
        await told(pilot, "check the path")
        await say(pilot, "/attach ")
        await told(pilot, "attach which file?")


async def test_a_waiting_question_keeps_its_chips() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "first")
        await paste(pilot, "z" * 3_000)
        await pilot.press("enter")
        await told(pilot, "queued: zzz")
        await pilot.press("escape")
        await until(pilot, idle(pilot))
        assert prompt_of(pilot).text == "[pasted 2.9 KiB] "
        assert pilot.app.query_one(ChatPane).talk.turns[0].state == "stopped"


async def test_old_long_texts_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffuse_tui.widgets.prompt.MAX_KEPT_CHARS", 7_000)
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt = prompt_of(pilot)
        for letter in "abc":
            await paste(pilot, letter * 3_000)
            prompt.taken()
        assert [text[0] for text in prompt.chips.values()] == ["b", "c"]
        prompt.put_question("c" * 3_000 + " ")
        assert prompt.full_text.strip() == "c" * 3_000
        assert len(prompt.chips) == 2
        # One that is not among those that were sent becomes a chip of its own.
        prompt.put_question("a" * 3_000)
        assert prompt.full_text == "a" * 3_000
        # What is recalled and sent again keeps its text; what was never sent goes first.
        await pilot.press("up", "up")
        assert prompt.text.startswith("[pasted")
        prompt.taken()
        await paste(pilot, "d" * 3_000)
        prompt.clear()
        prompt.taken()
        assert [text[0] for text in prompt.chips.values()] == ["b", "c"]
        await pilot.press("up", "up")
        assert prompt.full_text == "b" * 3_000 + " "


async def test_keys_right_after_enter_are_of_the_next_text() -> None:
    there = Node()
    async with running(there) as pilot:
        fake = await ready(pilot, there)
        prompt = prompt_of(pilot)
        prompt.focus()
        prompt.insert("first")
        for key in ("enter", "enter", "n", "e", "x", "t"):
            prompt.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await until(pilot, lambda: len(fake.generations) == 1)
        await until(pilot, lambda: prompt.text == "next")
        chat = pilot.app.query_one(ChatPane)
        assert [turn.question for turn in chat.talk.turns] == ["first"]
        assert "queued" not in screen_text(pilot)


async def test_a_text_too_long_to_type_in_says_so() -> None:
    there = Node()
    async with running(there) as pilot:
        await ready(pilot, there)
        prompt = prompt_of(pilot)
        prompt.insert("x" * 6_000)
        await paste(pilot, "y" * 3_000)
        await pilot.press("left", "ctrl+o")
        await told(pilot, "too long to be edited here: 3,000 characters")
        prompt.put("x" * 8_192)
        await pilot.press("z")
        await told(pilot, "no more than 8,192 characters can be typed")
        assert len(prompt.text) == 8_192
        await pilot.press("backspace", "z")
        assert prompt.text.endswith("xz")


async def test_two_files_at_once_are_both_attached(tmp_path: Path) -> None:
    there = Node()
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    async with running(there) as pilot:
        await ready(pilot, there)
        chat = pilot.app.query_one(ChatPane)
        for name in ("one.txt", "two.txt"):
            chat.do("attach", str(tmp_path / name))
        await until(pilot, lambda: prompt_of(pilot).text.count("[file ") == 2)
        chat.do("attach", "\ud800")
        await told(pilot, "type the path of a file")
