"""What the owner is told of models: once it is true for a while, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain_samples import MODEL, holding, member, record

from diffuse_core.domain.members import Member
from diffuse_core.domain.model_news import MAX_MODELS, ModelNews
from diffuse_core.domain.records import ModelRef

if TYPE_CHECKING:
    from diffuse_core.domain.narration import Line

SETTLE = 3.0


class Desk:
    """A network whose news are read every second."""

    def __init__(self, *members: Member, target: int = 2) -> None:
        self.members = list(members)
        self.news = ModelNews(target, SETTLE)
        self.now = 100.0
        assert self.look() == []

    def look(self, seconds: int = 1) -> list[Line]:
        found: list[Line] = []
        for _ in range(seconds):
            found += self.news.look(self.members, self.now)
            self.now += 1.0
        return found


def test_from_whole_to_lost_and_back() -> None:
    desk = Desk(member(1, 0, 30), member(2, 0, 20), member(3, 20, 30))
    assert desk.look(9) == []
    lost = desk.members.pop()
    told = desk.look(9)
    assert told == [("warning", "smol is Fragile: layers 20:30 have one holder")]
    first = desk.members.pop(0)
    told = desk.look(9)
    assert told == [("error", "smol is Incomplete: layers 20:30 of 30 are held by no live node")]
    desk.members.append(lost)
    told = desk.look(9)
    assert told == [
        (
            "good",
            "smol has all its layers and can answer; it is Fragile: layers 0:30 have one holder",
        )
    ]
    desk.members.append(first)
    ((level, text),) = desk.look(9)
    assert (level, text.partition(":")[0]) == ("good", "smol is Robust")


def test_what_lasts_a_moment_is_no_news() -> None:
    desk = Desk(member(1, 0, 30), target=1)
    gone = desk.members.pop()
    desk.members.append(Member(record=gone.record, liveness="dead", heard_at=0.0))
    assert desk.look(2) == []
    desk.members[-1] = gone
    assert desk.look(9) == []
    # Each time it has to last anew.
    desk.members[-1] = Member(record=gone.record, liveness="dead", heard_at=0.0)
    assert desk.look(3) == []
    assert [level for level, _ in desk.look(1)] == ["error"]


def test_less_that_is_missing_is_no_news_but_what_was_not_missing_before_is() -> None:
    desk = Desk(member(1, 0, 10), target=3)
    desk.members.append(member(2, 20, 30))
    assert desk.look(9) == []
    desk.members.append(member(3, 13, 16))
    assert desk.look(9) == []
    # As many gaps as before, but one of them elsewhere; then one that grows.
    desk.members[0] = member(4, 5, 13)
    assert desk.look(9) == [
        ("error", "smol is Incomplete: layers 0:5 and 16:20 of 30 are held by no live node")
    ]
    desk.members[1] = member(2, 24, 30)
    assert desk.look(9) == [
        ("error", "smol is Incomplete: layers 0:5 and 16:24 of 30 are held by no live node")
    ]
    desk.members[:2] = [member(1, 0, 13), member(2, 16, 30), member(5, 0, 30)]
    ((level, text),) = desk.look(9)
    assert level == "good"
    assert text.endswith("it is Fragile: layers 0:30 have 2 holders")


def test_a_model_that_nobody_holds_any_more_is_forgotten() -> None:
    desk = Desk(member(1, 0, 30), target=1)
    desk.members.clear()
    assert desk.look(9) == []
    desk.members.append(member(1, 0, 10))
    assert desk.look(9) == []


def test_the_names_of_strangers_are_bounded_and_harmless() -> None:
    def stranger(number: int, end: int) -> Member:
        ref = ModelRef(
            f"{number}\x1b" + "x" * 100,
            MODEL.fingerprint,
            MODEL.contract,
            MODEL.shape,
            MODEL.bundle,
        )
        held = record(number, holding=holding(0, end, model=ref))
        return Member(record=held, liveness="alive", heard_at=0.0)

    desk = Desk(*(stranger(number, 30) for number in range(1, MAX_MODELS + 9)), target=1)
    desk.members = [stranger(number, 3) for number in range(1, MAX_MODELS + 9)]
    told = desk.look(9)
    assert len(told) == MAX_MODELS
    assert not any("\x1b" in text or len(text) > 200 for _, text in told)
