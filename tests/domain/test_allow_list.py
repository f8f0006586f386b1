"""Allow lists: how they are written, and what gossip is left under one."""

from __future__ import annotations

import pytest

from diffuse_core.domain.allow_list import MAX_IDS, parse_id, parse_lines, without_strangers
from diffuse_core.domain.buckets import SUMMARY_BYTES
from diffuse_core.domain.messages import Ack, Ping, PingRequest, Pull, Push, Rumour, Summary
from diffuse_core.domain.records import SignedRecord
from diffuse_core.errors import UsageError
from tests.domain.domain_samples import node, signed

ALICE, BOB, EVE = node(1), node(2), node(3)
ALLOWED = frozenset({ALICE, BOB})
TOLD = tuple(Rumour(who, 1, "alive") for who in (ALICE, EVE, BOB))
LEFT = (TOLD[0], TOLD[2])


def test_ids_are_read_in_either_case() -> None:
    assert parse_id(ALICE.hex(), "--allow") == ALICE
    assert parse_id(ALICE.hex().upper(), "--allow") == ALICE


def test_a_file_has_an_id_a_line_and_comments() -> None:
    text = f"# ours\n{ALICE.hex()}\n\n  {BOB.hex()}  # the laptop\n"
    assert parse_lines(text, "list") == ALLOWED


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"{ALICE.hex()}\nnonsense\n", r"list, line 2: 'nonsense' is no node id"),
        (ALICE.hex()[:8], r"line 1: .*short one.*64 hexadecimal digits"),
        (ALICE.hex() + "00", "line 1"),
        (f"{ALICE.hex()} {BOB.hex()}", "line 1"),
        ("# nobody\n", "lists 0 node ids"),
        ("\n".join(f"{number:064x}" for number in range(MAX_IDS + 1)), "list 1 to"),
    ],
)
def test_what_is_no_list_is_refused_with_its_line(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        parse_lines(text, "list")


def test_gossip_about_strangers_is_left_out() -> None:
    push = Push(records=(signed(1), signed(3)), rumours=TOLD)
    assert without_strangers(push, ALLOWED) == Push(records=(signed(1),), rumours=LEFT)
    assert without_strangers(Pull(digest=TOLD), ALLOWED) == Pull(digest=LEFT)
    assert without_strangers(Ping(7, rumours=TOLD), ALLOWED) == Ping(7, rumours=LEFT)
    assert without_strangers(Ack(7, rumours=TOLD), ALLOWED) == Ack(7, rumours=LEFT)


def test_nobody_is_asked_to_look_after_a_stranger() -> None:
    assert without_strangers(PingRequest(1, EVE), ALLOWED) is None
    assert without_strangers(PingRequest(1, BOB), ALLOWED) == PingRequest(1, BOB)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa4node\x07", b"\x81\xa1x\x07"])
def test_a_record_of_nobody_is_left_out(payload: bytes) -> None:
    push = Push(records=(SignedRecord(payload, bytes(64)),))
    assert without_strangers(push, ALLOWED) == Push()


def test_what_says_nothing_of_others_passes() -> None:
    summary = Summary(bytes(SUMMARY_BYTES))
    assert without_strangers(summary, ALLOWED) is summary
