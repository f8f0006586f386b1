from __future__ import annotations

import pytest
from answer_driver import drawn
from tui_driver import screen_text, shown, until

from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.spans import Span
from diffuse_tui.widgets.code_block import CodeBlock
from diffuse_tui.widgets.looks import RowsWidget
from diffuse_tui.widgets.prose import Prose
from diffuse_tui.widgets.turn import TurnView

ANSWER = """# Rain

It **falls** on `hills`.

1. one
2. two

```python
def fall(height):
    return height  # down
```

| a | b |
|---|--:|
| c | 1 |
"""


def body_text(turn: TurnView) -> str:
    parts = turn.query(RowsWidget)
    return "\n".join(row.text for each in parts for row in each.rows_at(each.content_size.width))


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 18)])
async def test_an_answer_is_drawn_as_it_grows(size: tuple[int, int]) -> None:
    turn = TurnView("Why?")
    async with drawn(turn, size=size) as pilot:
        await shown(pilot, "waiting for the first token…")
        assert turn.state == "waiting"
        turn.add("# Rain\n\nIt **falls** on `hi")
        await shown(pilot, "It falls on `hi▍")
        assert turn.state == "streaming"
        turn.add("lls`.\n\n1. one\n2. two\n\n```python\ndef fall(height):\n    ret")
        await shown(pilot, "    ret▍")
        text = body_text(turn)
        assert "It falls on hills." in text
        assert "1. one" in text
        assert "python · 1 line " in text
        turn.add("urn height  # down\n```\n\n| a | b |\n|---|--:|\n| c | 1 |\n")
        turn.finish([(Span("3 tokens"),)])
        await shown(pilot, "3 tokens")
        await until(pilot, lambda: "c │ 1" in screen_text(pilot))
        text = body_text(turn)
        assert "▍" not in text
        assert "python · 2 lines" in text
        assert "─┼─" in text
        assert turn.answer == ANSWER
        assert turn.state == "done"
        assert len(turn.query(Prose)) == 2


async def test_code_is_reached_and_copied_by_keys_and_mouse() -> None:
    turn = TurnView("Why?")
    async with drawn(turn) as pilot:
        turn.add(ANSWER + "\n```\n" + "x" * 90 + " end\n```\n")
        turn.finish([])
        await until(pilot, lambda: len(turn.query(CodeBlock)) == 2)
        first, second = turn.query(CodeBlock).results()
        await pilot.press("left_square_bracket")
        assert pilot.app.focused is second
        assert "end" not in screen_text(pilot)
        await pilot.press("w")
        await shown(pilot, " end")
        await pilot.press("w")
        assert " end" not in screen_text(pilot)
        for _ in range(3):
            await pilot.press("l")
        await shown(pilot, " end")
        await pilot.press("left_square_bracket", "y")
        assert pilot.app.focused is first
        assert pilot.app.clipboard == "def fall(height):\n    return height  # down"
        assert pilot.app.told == ["2 lines of python"]
        await pilot.press("right_square_bracket", "right_square_bracket", "enter")
        assert pilot.app.clipboard.endswith("x end")
        assert await pilot.click(CodeBlock, offset=(first.size.width - 2, 0))
        assert pilot.app.clipboard.startswith("def")


async def test_tab_does_not_go_through_all_code() -> None:
    turn = TurnView("Why?")
    async with drawn(turn) as pilot:
        turn.add("```\na\n```\n```\nb\n```\n")
        turn.finish([])
        await until(pilot, lambda: len(turn.query(CodeBlock)) == 2)
        assert len(pilot.app.screen.focus_chain) == 1
        await pilot.press("right_square_bracket", "tab")
        assert pilot.app.focused is turn.query(CodeBlock).last()


async def test_what_is_selected_with_the_mouse_is_copied_without_the_screens_breaks() -> None:
    turn = TurnView("Why?")
    async with drawn(turn, size=(40, 20)) as pilot:
        turn.add("- one two three four five six seven eight nine ten\n\n```\ncode\n```\n")
        turn.finish([])
        await shown(pilot, "code · 1 line")
        prose, code = turn.query_one(Prose), turn.query_one(CodeBlock)
        await pilot.mouse_down(prose, offset=(7, 0))
        await pilot.hover(code, offset=(4, 1))
        await pilot.mouse_up(code, offset=(4, 1))
        assert pilot.app.screen.get_selected_text() == (
            "two three four five six seven eight nine ten\nco"
        )
        assert any(
            segment.style and segment.style.bgcolor and "two" in segment.text
            for segment in prose.render_line(0)
        )
        await pilot.press("ctrl+c")
        assert pilot.app.clipboard.startswith("two three")


async def test_turns_from_before_are_drawn_when_they_are_seen() -> None:
    turns = [
        TurnView.kept(KeptTurn(number=n, question=f"Q{n}", answer=ANSWER, state="done", note="n"))
        for n in range(60)
    ]
    async with drawn(*turns) as pilot:
        await until(pilot, lambda: bool(turns[59].query(Prose)))
        await shown(pilot, "It falls on hills.")
        assert not turns[30].children
        height = turns[59].size.height
        await pilot.press("tab", "home")
        await until(pilot, lambda: bool(turns[0].query(Prose)))
        await shown(pilot, "Q0")
        # Nor does one that is far away again, and nothing moves because of it.
        await until(pilot, lambda: not turns[59].children)
        assert turns[59].size.height == height
        assert not turns[30].children
        await pilot.press("end")
        await until(pilot, lambda: bool(turns[59].query(Prose)))
        await shown(pilot, "It falls on hills.")
        await until(pilot, lambda: turns[59].size.height == height)
        # What is in use stays.
        await pilot.press("left_square_bracket")
        assert pilot.app.focused in turns[59].query(CodeBlock)
        turns[59].fold_outside(turns[0].region)
        assert turns[59].children


@pytest.mark.parametrize(
    ("state", "note", "told"),
    [
        ("stopped", "", "■ stopped"),
        ("failed", "layers were lost", "✖ failed"),
        ("failed", "✖ layers were lost", "✖ layers were lost"),
        ("cut", "", "▲ cut: the app ended"),
        ("streaming", "", "▲ cut: the app ended"),
        ("done", "3 tokens\x1b", "3 tokens␛"),
    ],
)
async def test_how_a_turn_from_before_ended_is_said(state: str, note: str, told: str) -> None:
    turn = TurnView.kept(KeptTurn(number=0, question="Q", answer="A", state=state, note=note))
    async with drawn(turn) as pilot:
        await shown(pilot, told)
        assert turn.state == ("cut" if state == "streaming" else state)
        assert turn.answer == "A"
        assert turn.has_class("failed") == (state == "failed")
