"""Figures of what was heard: right for answers whose times are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli.bench.figures import KINDS, Row, decoding, reading, together
from diffuse_core.cli.bench.measure import Hop, Results
from diffuse_core.cli.bench.report import (
    figure_text,
    hop_times,
    plain_data,
    read_former,
    text_lines,
    title,
)
from diffuse_core.domain.pass_times import rank
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import (
    Failed,
    Finished,
    GenerateEvent,
    Healed,
    RouteChosen,
    RouteStep,
    StageTiming,
    TextDelta,
    Timings,
    Usage,
    Waiting,
)
from diffuse_core.errors import UsageError
from diffuse_core.services.measuring import Heard

if TYPE_CHECKING:
    from pathlib import Path

STEPS = (RouteStep("aa" * 32, Slice(0, 5)), RouteStep("bb" * 32, Slice(5, 10), "relay"))
PASS = (StageTiming(1.0, 0.5, 8.5), StageTiming(3.0, 1.0, 6.0))
FINISHED = Finished(
    finish_reason="length", usage=Usage(8, 5), timings=Timings(0.4, 10.0, 1.0), route=STEPS
)
CONDITIONS = {"model": "m", "prompt_tokens": 8, "tokens": 5, "concurrency": (1, 4)}


def heard_at(*at: float, asked: float = 0.0, counts: tuple[int, ...] = ()) -> Heard:
    """An answer whose Route was open 0.1 s after it was asked for."""
    heard = Heard(asked)
    heard.note(RouteChosen(STEPS, 8), asked + 0.1)
    for time, count in zip(at, counts or (1,) * len(at), strict=True):
        for place in range(count):
            stages = PASS if place == 0 else ()
            heard.note(TextDelta("x", (7,), stages=stages, place=place), time)
    heard.note(TextDelta("the tail"), at[-1] + 5)
    heard.note(FINISHED, at[-1])
    return heard


def test_reading_counts_from_the_open_route() -> None:
    found = reading(heard_at(1.9, 2.0, asked=1.0))
    assert found == {
        "first_token_s": pytest.approx(0.9),
        "opening_s": pytest.approx(0.1),
        "prefill_tokens_per_s": pytest.approx(10.0),
    }
    assert reading(Heard(0.0)) == {}


def test_decoding_leaves_the_first_pass_out() -> None:
    found = decoding(heard_at(1.0, 1.1, 1.3, 1.4))
    assert found["decode_tokens_per_s"] == pytest.approx(3 / 0.4)
    assert found["token_gap_p50_ms"] == pytest.approx(100)
    assert found["token_gap_p95_ms"] == pytest.approx(200)
    assert found["tokens_per_pass"] == 1


def test_tokens_of_one_pass_count_together() -> None:
    heard = heard_at(1.0, 2.0, 3.0, counts=(1, 3, 2))
    assert (heard.tokens, heard.counts) == (6, [1, 3, 2])
    found = decoding(heard)
    assert found["decode_tokens_per_s"] == pytest.approx(5 / 2)
    assert found["tokens_per_pass"] == 2
    assert decoding(heard_at(1.0)) == {}


def test_together_counts_while_all_run() -> None:
    one, other = heard_at(1.0, 2.0, 3.0, 4.0), heard_at(2.0, 2.5, 3.0, 3.5, 5.0)
    refused = Heard(0.0)
    found = together([one, other, refused])
    # Between 2.0 and 4.0: two of the one at 3.0 and 4.0, three of the other.
    assert found["aggregate_tokens_per_s"] == pytest.approx(5 / 2)
    assert found["session_tokens_per_s"] == pytest.approx((1 + 4 / 3) / 2)
    assert together([refused]) == {}
    apart = together([heard_at(1.0, 2.0), heard_at(3.0, 4.0)])
    assert "aggregate_tokens_per_s" not in apart


def test_ranks() -> None:
    assert rank(range(1, 101), 50) == 50
    assert rank(range(1, 101), 95) == 95
    assert rank([3.0], 95) == 3.0


def test_losses_and_errors_are_kept_as_events() -> None:
    heard = heard_at(1.0, 2.0)
    events: list[GenerateEvent] = [
        Waiting(lost=STEPS[0], why="gone", seconds=2.0),
        Healed(lost=STEPS[0], why="gone", replaced_by=STEPS[:1], seconds=0.5, route=STEPS[1:]),
        Failed("broke off", 7),
    ]
    for event in events:
        heard.note(event, 3.0)
    assert heard.healed == 1
    assert heard.route == STEPS[1:]
    assert len(heard.events) == 2
    assert str(heard.error) == "broke off"


def results() -> Results:
    made = Results(complete=True, rounds=2)
    for shift in (0.0, 0.1):
        heard = heard_at(1.0, 1.1 + shift, 1.2 + 2 * shift)
        made.add("plain", {**reading(heard), **decoding(heard)})
        made.passes.setdefault(STEPS, []).extend(heard.passes)
        made.routes[STEPS] = made.routes.get(STEPS, 0) + 1
    made.add("sessions_4", {"aggregate_tokens_per_s": 40.0, "session_tokens_per_s": 10.0})
    made.hops = [Hop(STEPS[0], 0.002), Hop(STEPS[1], None)]
    made.refused, made.failed = {4: 1}, {4: 0}
    return made


def test_medians_and_spread() -> None:
    row = results().rows["plain.decode_tokens_per_s"]
    assert (row.least, row.most) == (pytest.approx(5), pytest.approx(10))
    assert row.median == pytest.approx(7.5)
    assert set(KINDS) >= {name.partition(".")[2] for name in results().rows}


def test_shares_of_stages_are_of_the_whole() -> None:
    found = hop_times(results())
    assert found[0]["compute_p50_ms"] == 8.5
    assert sum(v for one in found for k, v in one.items() if k.endswith("share")) == 1
    assert hop_times(Results()) == []


def test_no_pass_is_left_out_twice() -> None:
    """That of the prompt is left out as passes are collected: the first of these is another."""
    made = results()
    first = (StageTiming(50.0, 0.0, 0.0), StageTiming(0.0, 0.0, 0.0))
    made.passes[STEPS] = [first, PASS]
    assert hop_times(made)[0]["wire_p95_ms"] == 50.0


def test_the_table() -> None:
    text = "\n".join(text_lines(results(), CONDITIONS, None))
    assert "1 session: decode" in text
    assert "4 sessions at once: 1 refused, 0 failed" in text
    assert "bbbbbbbb 5:10" in text
    assert "relay" in text
    assert "not complete" in "\n".join(text_lines(Results(), CONDITIONS, None))


def test_what_it_is_compared_with(tmp_path: Path) -> None:
    import msgspec

    path = tmp_path / "before.json"
    before = plain_data(results(), {**CONDITIONS, "tokens": 6}, None)
    path.write_bytes(msgspec.json.encode(before))
    former = read_former(path)
    now = results()
    for row in now.rows.values():
        row.median *= 2
    told = plain_data(now, CONDITIONS, former)
    assert set(told["ratios"].values()) == {2.0}
    assert told["unlike"] == ["tokens was 6: the two are not alike"]
    text = "\n".join(text_lines(now, CONDITIONS, former))
    assert "2.000 better" in text
    assert "2.000 worse" in text, "of what should be less"
    same = "\n".join(text_lines(results(), CONDITIONS, former))
    assert "1.000" in same
    assert "better" not in same
    json.loads(msgspec.json.encode(told))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"bench": 1}', '{"bench":99,"conditions":{},"rows":{}}']
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="--compare"):
        read_former(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_former(tmp_path / "none")


def test_names_and_numbers() -> None:
    assert title("sessions_1.session_tokens_per_s") == "1 session, short prompt: each session"
    assert title("speculative.tokens_per_pass").startswith("1 session, speculating")
    assert [figure_text(n) for n in (1234.5, 12.345, 0.01234)] == ["1234", "12.35", "0.01234"]
    row = Row("s", "lower", [])
    row.add(1.0)
    assert row.median == 1.0
