"""What came of an audit, and of a Stage that an answer lost, in words."""

from __future__ import annotations

from typing import Any

import pytest

from diffuse_core.domain.narration import audit_text, healed_text, quarantine_lines
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Audited, Comparison, Healed, RouteStep

STAGE, BEFORE, ONE, TWO = (letter * 64 for letter in "abcd")
NAME = "stage aaaaaaaa (layers 3:6)"


def audited(**more: Any) -> Audited:
    given = {"verdict": "differs", "tolerance": 0.08, "nats_tolerance": 0.75}
    return Audited(node=STAGE, slice=Slice(3, 6), **(given | more))


def against(
    auditor: str, difference: float | None = None, nats: float | None = None
) -> Comparison:
    return Comparison(auditor=auditor, agrees=False, difference=difference, nats=nats)


SAME = Comparison(auditor=ONE, agrees=True, difference=0.01)
TOLD = [
    (audited(verdict="unaudited", reason="nobody could"), "was not audited: nobody could"),
    (audited(verdict="agrees", auditors=(SAME,)), "agrees with cccccccc"),
    (
        audited(
            verdict="agrees",
            auditors=(against(ONE, 0.5), against(TWO, 0.0)),
            decided_by=TWO,
            reason="cccccccc agrees with neither",
            quarantined=(ONE,),
        ),
        "agrees with dddddddd; cccccccc agrees with neither; quarantined cccccccc",
    ),
    (
        audited(auditors=(against(ONE, 0.5), against(TWO)), decided_by=TWO, quarantined=(STAGE,)),
        "did not agree with two others, cccccccc and dddddddd (rows 0.5 apart, 0.08 passes); "
        "quarantined aaaaaaaa",
    ),
    (
        audited(auditors=(against(ONE, 0.01, 2.0),), reason="no third", doubtful=(STAGE,)),
        "did not agree with cccccccc (a token 2 nats out of reach, 0.75 passes); no third; "
        "doubtful from now on, and avoided while others do: aaaaaaaa",
    ),
    (
        audited(auditors=(against(ONE),), reason="or b", doubtful=(BEFORE, STAGE)),
        "did not agree with cccccccc; or b; "
        "doubtful from now on, and avoided while others do: aaaaaaaa and bbbbbbbb",
    ),
]


@pytest.mark.parametrize(("found", "told"), TOLD)
def test_each_outcome_names_who_and_why(found: Audited, told: str) -> None:
    assert audit_text(found) == f"{NAME} {told}"


def test_who_is_at_fault_or_may_be_is_accused() -> None:
    assert [found.accuses for found, _ in TOLD] == [False, False, True, True, True, True]


def test_an_answer_that_went_on() -> None:
    def healed(*others: str) -> Healed:
        taken = tuple(RouteStep(other, Slice(3, 6)) for other in others)
        lost = RouteStep(STAGE, Slice(3, 6))
        return Healed(
            lost=lost, why="its link ended", replaced_by=taken, seconds=1.23, route=taken
        )

    told = "an answer lost aaaaaaaa (layers 3:6): its link ended; went on with "
    assert healed_text(healed(TWO, ONE)) == told + "cccccccc and dddddddd after 1.2 s"
    assert healed_text(healed()) == told + "the same nodes after 1.2 s"


def test_what_has_changed_in_how_nodes_stand_is_told_once_for_each() -> None:
    assert quarantine_lines({}, {}) == []
    before = {ONE: "doubtful", TWO: "quarantined", STAGE: "quarantined"}
    now = {BEFORE: "doubtful", ONE: "quarantined", TWO: "quarantined"}
    assert quarantine_lines(before, now) == [
        ("warning", "bbbbbbbb is doubtful since an audit: avoided while there are others"),
        ("error", "cccccccc is quarantined: an audit found that what it computed is wrong"),
        ("info", "aaaaaaaa is quarantined no longer"),
    ]
    assert quarantine_lines({ONE: "doubtful"}, {}) == [("info", "cccccccc is doubtful no longer")]
