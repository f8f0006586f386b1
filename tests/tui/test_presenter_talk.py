from __future__ import annotations

import msgspec
import pytest
from tui_fakes import MODEL, PRINT, model, node

from diffuse_core.domain.context import MAX_CHARS, MAX_MESSAGES, context, token_chars
from diffuse_tui.presenter.answerer import Answerer
from diffuse_tui.presenter.asking import asking
from diffuse_tui.presenter.chat_notes import ChatState, state_note
from diffuse_tui.presenter.dialogue import Dialogue, KeptTurn
from diffuse_tui.presenter.parameters import Params
from diffuse_tui.presenter.talk import (
    MAX_OTHERS,
    Talk,
    as_dialogue,
    talk_of,
    was_cut,
)

NAME = f"{MODEL}@{PRINT}"


def answered(*pairs: tuple[str, str]) -> Talk:
    talk = Talk()
    for question, answer in pairs:
        talk = talk.asked(question, NAME, 5.0).answered("done", answer, "3 tokens")
    return talk


def said(talk: Talk) -> list[tuple[int, str, str]]:
    return [(turn.number, turn.question, turn.answer) for turn in talk.turns]


def test_asking_and_answering() -> None:
    talk = answered(("a", "b")).asked("c", NAME, 7.0)
    assert said(talk) == [(0, "a", "b"), (1, "c", "")]
    assert [turn.state for turn in talk.turns] == ["done", "streaming"]
    assert talk.turns[1].at == 7.0
    assert talk.last is talk.turns[1]
    stopped = talk.answered("stopped", "d")
    assert stopped.turns[1].state == "stopped"
    assert talk.turns[1].answer == ""
    assert Talk().last is None


def test_an_answer_made_anew_keeps_the_one_before() -> None:
    first = answered(("a", "b"), ("c", "d"))
    anew = first.asked_anew(1, "c", NAME).answered("done", "e")
    assert said(anew) == [(0, "a", "b"), (1, "c", "e")]
    other = anew.other()
    assert other is not None
    assert said(other) == said(first)
    # Again: the next one, and so around.
    again = other.other()
    assert again is not None
    assert said(again) == said(anew)
    assert Talk().other() is None


def test_versions_go_around_with_what_was_asked_after_them() -> None:
    talk = answered(("a", "1"))
    for answer in "23":
        talk = talk.asked_anew(0, "a", NAME, 5.0 + int(answer)).answered("done", answer)
    talk = talk.asked("later", NAME).answered("done", "x")
    seen, versions = [], []
    for _ in range(4):
        seen.append([turn.answer for turn in talk.turns])
        versions.append(talk.version)
        talk = talk.other() or talk
    assert versions == [(3, 3), (2, 3), (1, 3), (3, 3)]
    assert seen == [["3", "x"], ["2"], ["1"], ["3", "x"]]
    for _ in range(MAX_OTHERS + 3):
        talk = talk.asked_anew(0, "a", NAME).answered("done", "y")
    assert len(talk.others) == MAX_OTHERS


def test_editing_another_place_forgets_versions_of_the_first() -> None:
    talk = answered(("a", "1")).asked_anew(0, "A", NAME).answered("done", "2")
    talk = talk.asked("b", NAME).answered("done", "3").asked_anew(1, "B", NAME)
    assert talk.at == 1
    assert [turn.question for turn in talk.others[0]] == ["b"]
    assert len(talk.others) == 1


def test_a_kept_conversation_and_one_that_was_cut() -> None:
    turns = (
        KeptTurn(number=0, question="a", answer="b", state="done"),
        KeptTurn(number=2, question="c", answer="d"),
    )
    kept = Dialogue(id=4, title="t", system="s", params=Params(top_k=2), turns=turns)
    assert not was_cut(kept)  # It streams in an app that runs.
    talk = talk_of(kept)
    assert (talk.turns[0], talk.system, talk.params.top_k) == (turns[0], "s", 2)
    assert talk.turns[1].state == "cut"
    # A turn between them could not be kept.
    assert talk.asked("e", NAME).turns[-1].number == 2
    assert was_cut(Dialogue(id=4, title="t", turns=talk.turns))
    assert not was_cut(Dialogue(id=1, title="", turns=turns[:1]))
    assert not was_cut(Dialogue(id=1, title=""))
    back = as_dialogue(talk, 4, "")
    assert back is not None
    assert (back.title, back.system, back.turns) == ("a", "s", talk.turns)
    assert as_dialogue(Talk(), 0, "x") is None


def test_stopped_and_cut_answers_are_context_and_failed_ones_are_not() -> None:
    turns = [
        KeptTurn(number=n, question=f"q{n}", answer="x" if n < 3 else "", state=state)
        for n, state in enumerate(("stopped", "cut", "failed", "stopped"))
    ]
    sent = context(turns, "now", "be brief")
    assert [(m.role, m.content) for m in sent.messages] == [
        ("system", "be brief"),
        ("user", "q0"),
        ("assistant", "x"),
        ("user", "q1"),
        ("assistant", "x"),
        ("user", "now"),
    ]
    many = [KeptTurn(number=n, question="a", answer="b", state="done") for n in range(500)]
    assert len(context(many, "e", "s").messages) <= MAX_MESSAGES
    assert context(many[:1], "e", "s" * (MAX_CHARS - 2)).left_out == 1


def test_what_is_sent() -> None:
    there = model([node(1, (0, 30))])
    params = Params(temperature=0.5, top_p=0.9, stop=("END",), speculate=False, max_tokens=2000)
    talk = answered(("a", "b"))._replace(system="s", params=params).asked("c", NAME)
    ask = asking(talk, there, 77)
    assert ask.request.model == NAME
    assert [m.content for m in ask.request.messages] == ["s", "a", "b", "c"]
    assert (ask.request.sampling.temperature, ask.request.sampling.seed) == (0.5, 77)
    assert (ask.request.stop, ask.request.speculate) == (("END",), False)
    assert ask.request.timings
    assert (ask.seed, ask.left_out) == (77, 0)
    # What the user set counts up to the context; by default half of it is for what was said.
    assert ask.request.max_tokens == 2000
    plain = asking(talk._replace(params=Params()), there, 77)
    assert plain.request.max_tokens == 1024
    assert plain.seed is None
    assert asking(talk._replace(params=Params(seed=3, temperature=1)), there, 77).seed == 3
    assert asking(talk._replace(params=Params(audit=0.5)), there, 1).request.audit == 0.5


def test_what_the_model_has_no_positions_for_stays_behind() -> None:
    there = model([node(1, (0, 30))])
    talk = answered(*(("q" * 400, "a" * 600) for _ in range(9))).asked("now", NAME)
    # Half of 2048 positions at three characters each, and at those that a prompt has shown.
    assert asking(talk, there, 1).left_out == 6
    sent = asking(talk, there, 1, chars=6.0)
    assert sent.left_out == 3
    assert token_chars(sent.request.messages, 1_000) == pytest.approx(0.9 * 6.003)
    assert token_chars(sent.request.messages, 1) == 10.0
    assert token_chars(sent.request.messages, 0) is None
    assert token_chars(sent.request.messages[:1], 9) is None
    # Who wants long answers takes the room from what was said, but never more than half of it.
    for wanted, left_out in ((20, 3), (1_500, 6), (9_999, 6)):
        params = Params(max_tokens=wanted)
        assert asking(talk._replace(params=params), there, 1).left_out == left_out
    # The question itself is always sent.
    long = answered(("a", "b")).asked("x" * 9_000, NAME)
    assert [len(m.content) for m in asking(long, there, 1).request.messages] == [9_000]


def test_a_model_that_is_gone_is_not_replaced_silently() -> None:
    answerer = Answerer()
    assert answerer.why_not() == "not sent: the network is not known yet"
    there = model([node(1, (0, 30))])
    other = model([node(1, (0, 30))], id="second", fingerprint="cd" * 32)
    last = answered(("a", "b")).last
    assert answerer.set(there, None)
    # A newer picture of the same model is nothing new to say.
    assert not answerer.set(msgspec.structs.replace(there, hosts=9), None)
    assert answerer.model is not None
    assert answerer.model.hosts == 9
    assert answerer.switched(None, picked=False) == ""
    answerer.asked(NAME)
    assert answerer.switched(last, picked=False) is None
    answerer.set(None, "nobody holds it")
    assert answerer.switched(last, picked=False) is None
    assert answerer.why_not() == "not sent: nobody holds it"
    answerer.set(other, None)
    said = answerer.switched(last, picked=False)
    assert said == f"{MODEL} is not there any more · from here on: second"
    assert "once more asks second" in (answerer.why_not() or "")
    assert answerer.why_not() is None
    # Back again: the line is taken away.
    answerer.set(there, None)
    assert answerer.switched(last, picked=False) == ""
    # Chosen by the user: nothing to confirm.
    answerer.set(other, None)
    assert answerer.switched(last, picked=True) == "from here on: second"
    assert answerer.why_not() is None


def test_what_the_line_above_the_prompt_says() -> None:
    cases = {
        "Enter sends · Alt+Enter new line": ChatState(),
        "c or F3 to type again": ChatState(typing=False),
        "answering · Esc stops": ChatState(busy=True, refusal="x", editing=True),
        "stopping…": ChatState(busy=True, stopping=True, queued="q"),
        "queued: q": ChatState(busy=True, queued="q"),
        "editing the last question": ChatState(editing=True, refusal="x"),
        "cannot answer yet: x": ChatState(refusal="x", chars=10**6),
        "too long: 1,000,000 characters": ChatState(chars=10**6),
        "Enter sends 5,000 characters (at most 200,000)": ChatState(chars=5_000),
    }
    for begins, state in cases.items():
        assert state_note(state)[0].startswith(begins)
