from __future__ import annotations

from tui_fakes import finished

from diffuse_core.domain.context import MAX_CHARS, MAX_MESSAGES, context
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Audited,
    Healed,
    RouteStep,
    StageTiming,
    TextDelta,
    Waiting,
)
from diffuse_tui.presenter.conversation import (
    audited_line,
    brief_line,
    finished_lines,
    healed_line,
    opened_line,
    route_text,
    stopped_lines,
    waiting_line,
)
from diffuse_tui.presenter.dialogue import KeptTurn
from diffuse_tui.presenter.spans import plain
from diffuse_tui.presenter.waterfall import Times


def turn(question: str, answer: str) -> KeptTurn:
    return KeptTurn(number=0, question=question, answer=answer, state="done")


def test_all_turns_travel_with_a_question() -> None:
    sent = context([turn("a", "b"), turn("unanswered", ""), turn("c", "d")], "e")
    assert [(m.role, m.content) for m in sent.messages] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
        ("user", "e"),
    ]
    assert sent.left_out == 0


def test_too_long_a_conversation_loses_its_oldest_turns() -> None:
    sent = context([turn("a", "b" * MAX_CHARS), turn("c", "d")], "e")
    assert [m.content for m in sent.messages] == ["c", "d", "e"]
    assert sent.left_out == 1
    many = context([turn("a", "b")] * 500, "e")
    assert len(many.messages) == MAX_MESSAGES
    assert many.left_out == 500 - MAX_MESSAGES // 2


def test_what_is_said_about_an_answer() -> None:
    lines = [plain(line) for line in finished_lines(finished(events=("x\x1by",)), 0)]
    assert lines == [
        "3 tokens · first after 0.25 s · 12.5 tokens/s",
        "via 01010101 0:15 → 02020202 15:30",
        "▲ x␛y",
    ]
    assert plain(finished_lines(finished("length"), 0)[0]).endswith("cut off at the token limit")
    assert plain(finished_lines(finished("cancelled"), 0)[0]).endswith("stopped")
    assert plain(finished_lines(finished(), 0, (), 77)[0]).endswith("tokens/s · seed 77")
    assert plain(finished_lines(finished(), 2)[-1]) == "▲ the oldest 2 turns did not fit"


def test_the_times_of_each_stage_are_told_below_the_route() -> None:
    usual = (StageTiming(40.0, 0.02, 9.0), StageTiming(0.5, 0.0, 10.5))
    passes = [(StageTiming(0.0, 0.0, 900.0),) * 2, usual, usual]
    lines = [plain(line) for line in finished_lines(finished(events=("x",)), 0, passes)]
    assert lines[2:] == [
        "01010101 0:15 wire 40.0 · queue 0.02 · compute 9.00 ms · 82%",
        "02020202 15:30 wire 0.50 · queue 0.00 · compute 10.5 ms · 18%",
        "▲ x",
    ]
    # Of a Route with another number of Stages nothing is told.
    assert len(finished_lines(finished(), 0, [usual[:1]])) == 2


def healed(*others: str) -> Healed:
    steps = tuple(RouteStep(other, Slice(0, 15)) for other in others)
    lost = RouteStep("1a2b3c4d" * 8, Slice(0, 15))
    return Healed(lost=lost, why="gone", replaced_by=steps, seconds=0.42, route=steps)


def test_what_is_waited_for_in_one_line() -> None:
    lost = RouteStep("1a2b3c4d" * 8, Slice(10, 20))
    assert plain(waiting_line(Waiting(lost=lost, why="gone", seconds=10.0))) == (
        "… waiting: stage 1a2b3c4d was lost, up to 10 s for a host that takes layers 10:20"
    )


def test_a_liar_in_one_line() -> None:
    slice_, stage = Slice(10, 20), "1a2b3c4d" * 8
    found = Audited(node=stage, slice=slice_, verdict="unaudited", reason="it \x1b[2J\nends")
    assert plain(audited_line(found)) == (
        "▲ audit: stage 1a2b3c4d (layers 10:20) was not audited: it ␛[2J ends"
    )


def test_a_healed_answer_in_one_line() -> None:
    assert plain(healed_line(healed("5e6f7a8b" * 8))) == (
        "✚ healed: stage 1a2b3c4d was lost, went on with 5e6f7a8b after 0.4 s"
    )
    two = healed_line(healed("5e6f7a8b" * 8, "9ab\x1b0311"))
    assert "with 5e6f7a8b and 9ab␛0311 after" in plain(two)
    assert "went on with another route after" in plain(healed_line(healed()))


def test_what_is_said_where_there_is_little_room() -> None:
    assert plain(brief_line(finished())) == "3 tok · 1.0 s · 12/s"
    assert plain(brief_line(finished("length", ("x", "y")))) == "3 tok · 1.0 s · 12/s · cut · ▲ 2"
    assert len(plain(brief_line(finished("cancelled", ("x",))))) < 38


def test_routes() -> None:
    relayed = RouteStep("ff" * 32, Slice(0, 1), "relay")
    assert route_text([relayed]) == "ffffffff 0:1 (relay)"
    assert route_text([relayed] * 10).endswith("→ 2 more")
    assert plain(opened_line([relayed], 1)) == "1 prompt token via ffffffff 0:1 (relay)"


def test_a_stopped_answer_tells_how_fast_it_was() -> None:
    times = Times()
    assert [plain(line) for line in stopped_lines(times)] == ["■ stopped"]
    for at in range(5):
        times.add(TextDelta("x", (at,)), 100 + at / 10)
    times.route = (RouteStep("ab" * 32, Slice(0, 4)),)
    lines = [plain(line) for line in stopped_lines(times)]
    assert lines == ["■ stopped · 5 tokens · 10.0 tokens/s", "via abababab 0:4"]
