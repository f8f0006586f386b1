"""Parts of a chat: settings, history, completion, files."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from chat_fakes import Network, model

from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli.chat import chat, saved
from diffuse_core.cli.chat.actions import Actions
from diffuse_core.cli.chat.asker import Asker
from diffuse_core.cli.chat.commands import COMMANDS, Unknown, help_lines, read
from diffuse_core.cli.chat.completing import Words
from diffuse_core.cli.chat.conversation import Conversation, Turn
from diffuse_core.cli.chat.history import FILE, MAX_BYTES, MAX_ENTRIES, MAX_ENTRY, History
from diffuse_core.cli.chat.knobs import FIELDS, Knobs
from diffuse_core.cli.model_choice import only_model
from diffuse_core.domain.view import NetworkView
from diffuse_core.errors import UsageError
from diffuse_core.text_files import TextFile
from diffuse_tui.presenter.export_json import from_json as app_reads

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def given() -> dict[str, Any]:
    return {**chat.make_context("chat", []).params, "model": "m"}


@pytest.fixture
def knobs(given: dict[str, Any]) -> Knobs:
    return Knobs(chat, given)


@pytest.mark.parametrize(
    ("name", "typed", "field", "value", "shown"),
    [
        ("temperature", "0.7", "temperature", 0.7, "temperature 0.7"),
        ("temp", "1", "temperature", 1.0, "temperature 1"),
        ("TOP_K", "40", "top_k", 40, "top-k 40"),
        ("--min-p", ".1", "min_p", 0.1, "min-p 0.1"),
        ("seed", "7", "seed", 7, "seed 7"),
        ("seed", "none", "seed", None, "seed none"),
        ("n", "3", "count", 3, "n 3"),
        ("logprobs", "off", "logprobs", None, "logprobs none"),
        ("speculation", "off", "no_speculation", True, "speculation off"),
        ("timings", "on", "timings", True, "timings on"),
        ("stop", 'END "two words" \\n', "stop", ("END", "two words", "\n"),
         "stop END 'two words' '\\n'"),
        ("stop", "none", "stop", (), "stop none"),
        ("logit-bias", "4=2 5=-1", "logit_bias", ((4, 2.0), (5, -1.0)), "logit-bias 4=2 5=-1"),
    ],
)  # fmt: skip
def test_what_is_typed_is_set(
    knobs: Knobs, given: dict[str, Any], name: str, typed: str, field: str, value: Any, shown: str
) -> None:
    assert knobs.set(name, typed) == shown
    assert given[field] == value
    again, _, text = shown.partition(" ")
    assert knobs.set(again, text) == shown


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("temperature", "nan", "no usable number"),
        ("temperature", "101", "temperature: 101"),
        ("temperature", "hot", "'hot' is not a valid number."),
        ("top-k", "all", "'all' is not a valid integer."),
        ("temperature", "", "temperature is 0; /set temperature VALUE"),
        ("temprature", "1", "did you mean temperature?"),
        ("colour", "1", "there are temperature, top-p"),
        ("seed", "-1", "seed: -1"),
        ("min-tokens", "600", "--min-tokens 600 is more than --max-tokens 512"),
        ("stop", "a 'b", "quotation mark"),
        ("stop", "x" * 257, "that cannot be asked"),
        ("stop", " ".join("abcdefghijklmnopq"), "that cannot be asked"),
        ("stop", "x" * 10_000, "longer than"),
        ("speculation", "perhaps", "on or off"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    knobs: Knobs, given: dict[str, Any], name: str, typed: str, words: str
) -> None:
    before = dict(given)
    with pytest.raises(UsageError, match=words.replace("?", "\\?")):
        knobs.set(name, typed)
    assert given == before


def test_all_settings_are_listed_and_stars_stand_at_changed_ones(knobs: Knobs) -> None:
    assert all(line.startswith(" ") for line in knobs.lines())
    knobs.set("seed", "7")
    changed = [line for line in knobs.lines() if line.startswith("*")]
    assert changed == [f"* {'seed':<20} 7"]
    assert len(knobs.names) == len(FIELDS)
    assert all(len(line) < 60 for line in knobs.lines())


def test_commands_are_read() -> None:
    assert read("what?") == "what?"
    assert read("//x") == "/x"
    assert read("/SYSTEM a\nb c") == ("system", "a\nb c")
    assert read("/system\na b") == ("system", "a b")
    assert read("/clear") == ("reset", "")
    assert isinstance(read("/"), Unknown)
    assert read("/\x1b[2J").sentence.startswith("there is no command /␛[2j")  # type: ignore[union-attr]
    assert all(len(line) <= 60 for line in help_lines())
    assert len(help_lines()) == len(COMMANDS)


def test_tab_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "nested dir").mkdir()
    (tmp_path / "nested dir" / "a.md").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "n\x1b]0;x\x07").write_text("x")
    words = Words(lambda: ["demo", "b\x1b[2Jad", "deep"], ("temperature", "top-p", "speculation"))
    assert words.complete("/he") == ["/help"]
    assert words.complete("/s") == ["/system ", "/set ", "/save ", "/stats", "/status"]
    assert words.complete("/model de") == ["/model deep", "/model demo"]
    assert words.complete("/model b") == []
    assert words.complete("/set t") == ["/set temperature ", "/set top-p "]
    assert words.complete("/set speculation o") == ["/set speculation on", "/set speculation off"]
    assert words.complete("/attach n") == ["/attach nested dir/", "/attach notes.txt"]
    assert words.complete("/attach nested dir/") == ["/attach nested dir/a.md"]
    assert words.complete("/load .h") == ["/load .hidden"]
    assert words.complete("/load nowhere/") == []
    assert words.complete("/undo x") == words.complete("question") == []


def test_history_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    for text in ("one", "two\nlines", "two\nlines", "  ", "x" * (MAX_ENTRY + 1), "\udce4"):
        history.add(text)
    file = tmp_path / "state" / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert History(tmp_path / "state").entries == ["one", "two\nlines", "?"]
    # Two chats at a time lose nothing.
    other = History(tmp_path / "state")
    history.add("three")
    other.add("four")
    assert History(tmp_path / "state").entries[-2:] == ["three", "four"]


def test_history_is_bounded_and_survives_damage(tmp_path: Path) -> None:
    history = History(tmp_path)
    (tmp_path / FILE).write_bytes(b'"good"\n\xff\xfe\n{"a": 1}\n"cut')
    assert History(tmp_path).entries == ["good"]
    (tmp_path / FILE).write_bytes(b"\n".join(b'"e%d"' % n for n in range(5_000)))
    assert len(History(tmp_path).entries) == MAX_ENTRIES
    history.entries.clear()
    for number in range(80):
        (tmp_path / FILE).unlink(missing_ok=True)
        history.entries = [*history.entries, f"{number}" + "y" * (MAX_ENTRY - 9)]
    history.add("last")
    assert (tmp_path / FILE).stat().st_size <= MAX_BYTES
    assert History(tmp_path).entries[-1] == "last"


def test_without_a_place_history_is_of_this_chat_alone(tmp_path: Path) -> None:
    history = History(None)
    history.add("one")
    assert history.entries == ["one"]
    os.mkfifo(tmp_path / FILE)
    broken = History(tmp_path)
    assert "what is typed is not kept" in broken.problem
    broken.add("two")
    assert broken.entries == ["two"]


TURNS = [Turn("q\x1b1", "```\ncode", "done", "m", 5.0), Turn("q2", "a2", "stopped", "m", 6.0)]


def test_a_saved_chat_can_be_read_back_here_and_by_the_app(knobs: Knobs) -> None:
    knobs.set("temperature", "0.5")
    values = knobs.values()
    text = saved.to_json(TURNS, "m", "brief", values, 9.0)
    assert "\x1b" not in text
    back = saved.from_json(text.encode())
    assert back.as_turns() == TURNS
    assert (back.system, back.parameters["temperature"]) == ("brief", 0.5)
    dialogue = app_reads(text.encode())
    assert [turn.answer for turn in dialogue.turns] == ["```\ncode", "a2"]
    assert (dialogue.params.temperature, dialogue.system) == (0.5, "brief")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"format": "x", "version": 1}', b"\xff", b"[" * 100_000,
     b'{"format": "diffuse.conversation", "version": 2}',
     b'{"format": "diffuse.conversation", "version": 1, "turns": [{"question": 1}]}'],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_conversation_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        saved.from_json(data)


def test_parameters_of_a_file_are_checked(knobs: Knobs, given: dict[str, Any]) -> None:
    knobs.load({"temperature": 1, "stop": ["a b", "\n"], "speculate": False, "later": 1,
                "logit_bias": [[4, 2]], "seed": None})  # fmt: skip
    assert (given["temperature"], given["stop"], given["no_speculation"]) == (
        1,
        ("a b", "\n"),
        True,
    )
    assert given["logit_bias"] == ((4, 2.0),)
    before = dict(given)
    for bad in ({"seed": 3, "top_p": 9}, {"temperature": "hot"}, {"stop": [["x"] * 2] * 40}):
        with pytest.raises(UsageError):
            knobs.load(bad)
        assert given == before


def test_markdown_keeps_its_parts_apart() -> None:
    assert saved.to_markdown(TURNS, "m", "be\nbrief").split("\n\n") == [
        "# Chat", "- Model: `m`", "## System prompt", "> be\n> brief", "## Question 1", "> q␛1",
        "## Answer 1", "```\ncode\n```", "## Question 2", "> q2", "## Answer 2", "a2",
        "*stopped*\n",
    ]  # fmt: skip


def test_less_of_a_conversation_is_sent_at_each_try() -> None:
    conversation = Conversation("system")
    for number in range(5):
        conversation.add(Turn(f"q{number}", f"a{number}"))
    conversation.add(Turn("failed", "", "failed"))
    sent = conversation.asking("now", None, 512)
    assert sent.left_out == 0
    counts = []
    while sent is not None:
        counts.append((len(conversation.turns_sent(sent)), sent.left_out))
        last, sent = sent, conversation.shorter("now", sent)
    assert counts == [(5, 0), (2, 3), (1, 4), (0, 5)]
    assert [message.content for message in last.messages] == ["system", "now"]


def test_models_of_one_name_are_told_apart() -> None:
    one, two = model("m"), model("m")
    view = NetworkView(taken_at=0.0, me=None, nodes=(), models=(one, two))
    with pytest.raises(UsageError, match="m@6d0000000000"):
        only_model(view)
    gone = NetworkView(taken_at=0.0, me=None, nodes=(), models=(one, model("m", servable=False)))
    assert only_model(gone) == "m@6d0000000000"


async def test_what_is_edited_is_the_question_that_was_taken_back(given: dict[str, Any]) -> None:
    asker = Asker(given, Network(), SystemClock())
    actions = Actions(asker, Knobs(chat, given), SystemClock())
    edit, undo, retry = read("/edit"), read("/undo"), read("/retry")
    for question in ("one", "one and two"):
        asker.files.append(TextFile("a.txt", "text"))
        await asker.ask(question)
    await actions.run(edit)
    assert actions.draft == "one and two"
    await actions.run(retry)
    assert asker.conversation.turns[-1].question.startswith("one\n\na.txt")
    await actions.run(edit)
    assert actions.draft.startswith("one\n\na.txt")
    await actions.run(undo)
    await actions.run(edit)
    assert actions.draft == ""
