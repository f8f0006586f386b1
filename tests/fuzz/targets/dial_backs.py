"""Reachability and reservations, the pure parts: sentinels that answer what they please."""

from __future__ import annotations

import math
import random

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.reachability import (
    MAX_SENTINELS,
    DialBacks,
    dial_back_address,
    ip_of,
    neighbourhood,
    told_addresses,
)
from diffuse_core.domain.records import MAX_ADDRESSES
from diffuse_core.domain.reservations import WANTED, Candidate, ReservationPlan
from tests.fuzz.script import script, steps

SCRIPT = True
PORT = 9440
_KINDS = 8
ANSWER, SILENT, CUT_OFF, WAIT, ASK, GRANT, END, LOOK = range(_KINDS)
_NODES = tuple(NodeId(bytes([number]) * 32) for number in range(1, 9))
_OWN = ("10.0.0.7:9440", "[fe80::1]:9440", "127.0.0.1:9440")
_RELAYED = (f"relay:{'ab' * 32}@192.0.2.1:9440", f"relay:{'cd' * 32}@192.0.2.2:9440")
WORDS = (
    b":9440",
    b"203.0.113.5:9440",
    b"8.8.8.8:9440",
    b"[2001:4860:4860::8888]:9440",
    b"[::ffff:10.0.0.1]:9440",
    b"[2002:7f00:1::]:9440",
    b"[64:ff9b::7f00:1]:9440",
    b"[fe80::1%eth0]:9440",
    b"0.0.0.0:9440",
    b"255.255.255.255:9440",
    b"127.1:9440",
    b"0x7f000001:9440",
    b"[::]:9440",
    b"[ff02::1]:9440",
)


class _Mind:
    """One node: whom it asked, and what it made of the answers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.dial_backs = DialBacks(PORT, _OWN, random.Random(5))
        self.plan = ReservationPlan(random.Random(6))
        self.candidates = [Candidate(node, ("192.0.2.9:9440",)) for node in _NODES]

    def take(self, kind: int, who: int, argument: bytes) -> None:
        node = _NODES[who % len(_NODES)]
        flags, text = (argument[:1] or b"\x00")[0], argument[1:].decode("utf-8", "replace")
        if kind == ANSWER:
            reached = bool(flags & 1)
            self.dial_backs.answered(node, reached, text, met=bool(flags & 2), now=self.now)
        elif kind == SILENT:
            self.dial_backs.silent(node, self.now)
        elif kind == CUT_OFF:
            self.dial_backs.cut_off(self.now)
        elif kind == WAIT:
            self.now += int.from_bytes(argument[:2], "little") / 50
        elif kind == ASK:
            some = _NODES[who % len(_NODES) :]
            asked = self.dial_backs.due(some[: flags % 4], some[flags % 4 :], self.now)
            assert len(asked) <= MAX_SENTINELS
        else:
            self.reserve(kind, node, flags)

    def reserve(self, kind: int, node: NodeId, flags: int) -> None:
        if kind == GRANT:
            self.plan.granted(node, 1 + flags * 340, self.now)
        elif kind == END:
            self.plan.ended(node, self.now)
        else:
            asked = self.plan.due(self.candidates[: flags % 9], self.now)
            assert len(asked) <= WANTED
        deadline = self.plan.next_deadline(self.now)
        assert not math.isnan(deadline)

    def check(self) -> None:
        assert len(self.dial_backs.asked()) <= MAX_SENTINELS
        assert len(self.plan.concerned()) <= WANTED
        verdict = self.dial_backs.verdict
        for address in verdict.reached:
            assert address.endswith(f":{PORT}")
            assert dial_back_address(address, PORT) == address
        for mode in ("auto", "always", "never"):
            told = told_addresses(mode, verdict, _OWN, _RELAYED)
            assert len(told) <= MAX_ADDRESSES
            assert len(set(told)) == len(told)


def _place(text: str) -> None:
    """A sentinel dials nobody but the IP that it sees, and none that means no single machine."""
    address = dial_back_address(text, PORT)
    seen = ip_of(text)
    if address is None:
        return
    found = ip_of(address)
    assert found is not None
    assert found == seen
    assert neighbourhood(found)
    assert not found.is_multicast
    assert not found.is_unspecified
    assert not found.is_link_local


def target(data: bytes) -> str:
    """Bounded whatever is answered; what is told to others can be dialled."""
    mind = _Mind()
    for number, argument in steps(data):
        mind.take(number % _KINDS, number // _KINDS, argument)
        _place(argument[1:].decode("utf-8", "replace"))
        mind.check()
    verdict = mind.dial_backs.verdict
    held = len(mind.plan.held(mind.now))
    return f"{len(verdict.reached)} reached, {len(verdict.unreached)} not, {held} held"


def _said(kind: int, who: int = 0, argument: bytes = b"") -> tuple[int, bytes]:
    return kind + _KINDS * who, argument


def samples() -> dict[str, bytes]:
    """Sentinels that reach us, do not, and lie; reservations beside."""
    ask = [_said(ASK, 0, b"\x02"), _said(WAIT, 0, b"\x40\x00"), _said(ASK, 0, b"\x02")]
    found = {}
    for number, word in enumerate(WORDS):
        answers = [_said(ANSWER, who, bytes([3 - who]) + word) for who in range(3)]
        found[f"answers-{number}"] = script(*ask, *answers, _said(WAIT, 0, b"\xff\xff"), *ask)
    nobody = [_said(ANSWER, who, b"\x008.8.8.8:9440") for who in range(3)]
    silent = [_said(SILENT, who) for who in range(3)]
    found["nobody"] = script(*ask, *nobody, _said(CUT_OFF), *ask, *silent, *ask)
    look = [_said(LOOK, 0, b"\x08"), _said(GRANT, 0, b"\x01"), _said(GRANT, 1, b"\x00")]
    later = [_said(WAIT, 0, b"\xff\x10"), _said(END, 0), _said(END, 1)]
    found["reserved"] = script(*look, *later, *look, *later, *look)
    return found
