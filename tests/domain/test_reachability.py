"""Whom to ask to dial a node back, what follows from the answers, and what others are told."""

from __future__ import annotations

import random

import pytest

from diffuse_core.domain.reachability import (
    FIRST_S,
    MAX_SENTINELS,
    PAUSE_S,
    RECHECK_S,
    DialBacks,
    Verdict,
    told_addresses,
)
from diffuse_core.domain.relayed_address import RelayedAddress
from tests.domain.domain_samples import ordered

A, B, C, D, E = (ordered(number) for number in range(1, 6))
PORT = 9440
PUBLIC, PRIVATE, NEAR = f"8.8.4.4:{PORT}", f"192.168.1.5:{PORT}", f"127.0.0.1:{PORT}"
PUBLIC_6 = f"[2a00:1450::1]:{PORT}"


class Asking:
    """A node that asks, under a clock of the test's."""

    def __init__(self, *own: str) -> None:
        self.backs = DialBacks(PORT, own, random.Random(1))
        self.now = 100.0
        self.trusted: list = []
        self.others: list = []

    def due(self) -> list:
        return self.backs.due(self.trusted, self.others, self.now)

    def ask_all(self) -> list:
        """Let those that are new be due, and ask them."""
        self.due()
        self.now += 2 * FIRST_S
        return self.due()

    def says(self, node: bytes, reached: bool, address: str = PUBLIC, *, met: bool = True) -> None:
        self.backs.answered(node, reached, address, met=met and reached, now=self.now)

    def next_ask(self) -> float:
        """Seconds until somebody is due."""
        start = self.now
        while not self.due():
            self.now += 0.25
            assert self.now < start + 4000
        return self.now - start

    @property
    def verdict(self) -> Verdict:
        return self.backs.verdict


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_sentinels_are_asked_soon_the_named_ones_first(asking: Asking) -> None:
    asking.others, asking.trusted = [B, C, D, E], [A]
    assert asking.due() == []
    chosen = asking.ask_all()
    assert len(chosen) == MAX_SENTINELS
    assert chosen[0] == A
    assert asking.due() == []
    assert asking.backs.asked() == frozenset(chosen)


def test_one_that_was_named_displaces_another(asking: Asking) -> None:
    asking.others = [B, C, D]
    asking.ask_all()
    asking.trusted = [A]
    asking.due()
    assert A in asking.backs.asked()
    assert len(asking.backs.asked()) == MAX_SENTINELS


def test_those_asked_once_stay_as_long_as_they_live(asking: Asking) -> None:
    asking.others = [B, C, D]
    chosen = set(asking.ask_all())
    asking.others = [ordered(n) for n in range(50, 90)] + [B, C, D]
    asking.due()
    assert asking.backs.asked() == chosen
    asking.others.remove(B)
    asking.due()
    assert len(asking.backs.asked() - chosen) == 1


def test_nothing_is_known_before_an_answer(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    assert asking.verdict == Verdict()
    asking.backs.silent(A, asking.now)
    asking.backs.silent(B, asking.now)
    assert asking.verdict == Verdict()


def test_who_is_reached_is_asked_about_again_in_ten_minutes(asking: Asking) -> None:
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, True)
    assert asking.verdict == Verdict((PUBLIC,))
    assert 0.7 * RECHECK_S < asking.next_ask() < 1.3 * RECHECK_S


def test_the_only_sentinel_says_no(asking: Asking) -> None:
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, False)
    assert asking.verdict == Verdict((), ((A, PUBLIC),))
    waits = []
    for _ in range(6):
        waits.append(asking.next_ask())
        asking.says(A, False)
    assert waits[0] < 90
    assert waits == sorted(waits)
    assert waits[-1] < 1.3 * RECHECK_S
    asking.next_ask()
    asking.says(A, True)
    assert asking.verdict == Verdict((PUBLIC,))


def test_one_no_waits_for_those_who_had_no_chance_to_answer(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    asking.says(A, False)
    assert asking.verdict == Verdict()
    asking.backs.silent(B, asking.now)
    assert asking.verdict.unreached == ((A, PUBLIC),)


def test_two_noes_are_enough(asking: Asking) -> None:
    asking.trusted = [A, B, C]
    asking.ask_all()
    asking.says(A, False)
    asking.says(B, False)
    assert asking.verdict.unreached == ((A, PUBLIC), (B, PUBLIC))


@pytest.mark.parametrize("liar", [A, B, C])
def test_a_liar_talks_nobody_out_of_being_reached(asking: Asking, liar: bytes) -> None:
    asking.trusted = [A, B, C]
    asking.ask_all()
    for node in (A, B, C):
        asking.says(node, node != liar)
    assert asking.verdict == Verdict((PUBLIC,))


def test_a_liar_talks_nobody_into_being_reached(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    asking.says(A, True, met=False)
    assert asking.verdict == Verdict()
    asking.says(B, False)
    assert asking.verdict == Verdict((), ((B, PUBLIC),))


def test_of_different_addresses_most_sentinels_name_the_right_one(asking: Asking) -> None:
    asking.trusted = [A, B, C]
    asking.ask_all()
    asking.says(A, True, f"9.9.9.9:{PORT}")
    asking.says(B, True)
    asking.says(C, True)
    assert asking.verdict.reached == (PUBLIC,)


@pytest.mark.parametrize(
    "address",
    ["", "8.8.4.4:9441", "8.8.4.4", f"name.example.org:{PORT}", f"224.0.0.1:{PORT}", "\x1b[2J"],
)
@pytest.mark.parametrize("reached", [True, False])
def test_an_answer_without_our_address_says_nothing(
    asking: Asking, address: str, reached: bool
) -> None:
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, reached, address)
    assert asking.verdict == Verdict()
    assert asking.next_ask() < 60


def test_a_limited_answer_leaves_what_was_known(asking: Asking) -> None:
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, True)
    asking.next_ask()
    asking.says(A, False, "")
    assert asking.verdict == Verdict((PUBLIC,))


def test_answers_to_what_was_not_asked_count_for_nothing(asking: Asking) -> None:
    asking.says(A, False)
    asking.backs.silent(A, asking.now)
    asking.trusted = [A]
    asking.due()
    asking.says(A, False)
    asking.backs.silent(A, asking.now)
    assert asking.verdict == Verdict()


def test_the_first_failure_after_success_is_heard_again(asking: Asking) -> None:
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, True)
    asking.next_ask()
    asking.says(A, False)
    assert asking.verdict == Verdict((PUBLIC,))
    assert asking.next_ask() < 60
    asking.says(A, False)
    assert asking.verdict == Verdict((), ((A, PUBLIC),))


def test_reached_from_the_lan_is_not_reached_from_outside(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    asking.says(A, True, PRIVATE)
    asking.says(B, False, PUBLIC)
    assert asking.verdict == Verdict((PRIVATE,), ((B, PUBLIC),))


def test_reached_from_outside_is_reached(asking: Asking) -> None:
    asking.trusted = [A, B, C]
    asking.ask_all()
    asking.says(A, True, PUBLIC)
    asking.says(B, False, PRIVATE)
    asking.says(C, False, NEAR)
    assert asking.verdict == Verdict((PUBLIC,))


@pytest.mark.parametrize(
    ("own", "unreached"),
    [((PRIVATE,), ()), ((NEAR,), ((A, NEAR),)), ((PRIVATE, NEAR), ()), ((), ((A, NEAR),))],
)
def test_a_node_that_listens_on_one_interface_need_not_do_so_on_loopback(
    own: tuple[str, ...], unreached: tuple
) -> None:
    asking = Asking(*own)
    asking.trusted = [A]
    asking.ask_all()
    asking.says(A, False, NEAR)
    assert asking.verdict.unreached == unreached


def test_ipv6_alone_does_not_serve_those_without(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    asking.says(A, True, PUBLIC_6)
    asking.says(B, False, PUBLIC)
    assert asking.verdict == Verdict((PUBLIC_6,), ((B, PUBLIC),))


def test_addresses_for_all_the_world_come_first(asking: Asking) -> None:
    asking.trusted = [A, B, C]
    asking.ask_all()
    asking.says(A, True, PRIVATE)
    asking.says(B, True, PUBLIC_6)
    asking.says(C, True, f"[::ffff:8.8.4.4]:{PORT}")
    assert asking.verdict.reached == (PUBLIC, PUBLIC_6, PRIVATE)


def test_what_is_known_holds_when_the_sentinels_go(asking: Asking) -> None:
    asking.trusted = [A, B]
    asking.ask_all()
    asking.says(A, False)
    asking.says(B, True)
    assert asking.verdict == Verdict((PUBLIC,))
    asking.trusted = [A]
    asking.due()
    assert asking.verdict == Verdict((), ((A, PUBLIC),))
    asking.trusted = []
    asking.due()
    assert asking.verdict == Verdict((), ((A, PUBLIC),))
    assert asking.backs.asked() == frozenset()
    asking.trusted = [A]
    assert asking.ask_all() == [A]


def test_a_cut_off_node_asks_soon_but_not_on_and_on(asking: Asking) -> None:
    asking.trusted = [A]
    asking.due()
    asking.backs.cut_off(asking.now)
    asking.ask_all()
    asking.says(A, True)
    asking.now += 60
    asking.backs.cut_off(asking.now)
    assert asking.next_ask() < 2 * FIRST_S
    asking.says(A, True)
    asking.backs.cut_off(asking.now)
    assert asking.next_ask() >= PAUSE_S - 1
    waits = []
    for _ in range(6):
        asking.backs.silent(A, asking.now)
        asking.backs.cut_off(asking.now)
        waits.append(asking.next_ask())
    assert waits[-1] > 10 * waits[0] > 100


# --- what others are told -----------------------------------------------------------------

LAN = (PRIVATE, f"172.17.0.1:{PORT}", f"[fd00::1]:{PORT}")
VIA = tuple(str(RelayedAddress(node, f"9.9.9.{n}:1")) for n, node in enumerate((A, B), 1))
UNREACHED = ((A, PUBLIC),)


@pytest.mark.parametrize(
    ("verdict", "own", "relayed", "told"),
    [
        (Verdict(), LAN, (), LAN),
        (Verdict((PUBLIC,)), LAN, (), (PUBLIC, *LAN)),
        (Verdict((PRIVATE,)), LAN, (), LAN),
        (Verdict((LAN[1],)), LAN, (), (LAN[1], LAN[0], LAN[2])),
        (Verdict((PUBLIC, PUBLIC_6)), LAN, (), (PUBLIC, PUBLIC_6, *LAN[:2])),
        # Of a sentinel on this very machine others learn nothing.
        (Verdict((NEAR,)), LAN, (), LAN),
        (Verdict((NEAR,)), (NEAR,), (), (NEAR,)),
        (Verdict((NEAR,)), (), (), (NEAR,)),
        (Verdict((NEAR,)), (f"a.example.org:{PORT}",), (), (f"a.example.org:{PORT}",)),
        (Verdict((), UNREACHED), LAN, VIA, (*LAN[:2], *VIA)),
        (Verdict((), UNREACHED), LAN[:1], VIA[:1], (*LAN[:1], *VIA[:1])),
        (Verdict((PUBLIC_6,), UNREACHED), LAN, VIA, (PUBLIC_6, LAN[0], *VIA)),
        (Verdict((), UNREACHED), LAN, (), LAN),
    ],
)
def test_others_are_told_what_is_of_use(
    verdict: Verdict, own: tuple, relayed: tuple, told: tuple
) -> None:
    assert told_addresses("auto", verdict, own, relayed) == told


def test_always_relayed_is_nothing_else() -> None:
    assert told_addresses("always", Verdict((PUBLIC,)), LAN, VIA) == VIA
    assert told_addresses("always", Verdict(), LAN, ()) == ()


def test_never_relayed_is_told_of_as_the_user_knows_it() -> None:
    assert told_addresses("never", Verdict((PUBLIC,), UNREACHED), LAN, VIA) == LAN


def test_what_forwards_a_port_is_judged_only_from_its_other_side() -> None:
    named = (f"1.2.3.4:{PORT}",)
    for forwarded in (True, False):
        asking = Asking()
        asking.backs = DialBacks(PORT, named, random.Random(1), forwarded=forwarded)
        asking.trusted = [A]
        asking.ask_all()
        asking.says(A, False, PRIVATE)
        assert bool(asking.verdict.unreached) == (not forwarded)
    # A name may lead anywhere, so it is meant for all the world.
    for own, address, heard in (
        (named, PUBLIC, True),
        (("a.example.org:1",), PUBLIC, True),
        (("a.example.org:1",), PRIVATE, False),
        ((PRIVATE,), PRIVATE, True),
        ((NEAR,), NEAR, True),
    ):
        asking = Asking()
        asking.backs = DialBacks(PORT, own, random.Random(1), forwarded=True)
        asking.trusted = [A]
        asking.ask_all()
        asking.says(A, False, address)
        assert bool(asking.verdict.unreached) == heard


def test_addresses_that_the_user_gave_stand_first_and_alone() -> None:
    named = tuple(f"1.2.3.{n}:{PORT}" for n in range(4))
    relayed = [str(RelayedAddress(node, PUBLIC)) for node in (A, B)]
    away = Verdict((), ((A, PUBLIC),))
    found = Verdict((PUBLIC,))
    assert told_addresses("auto", found, named[:1], relayed, named=True) == named[:1]
    assert told_addresses("auto", away, named[:1], [], named=True) == named[:1]
    told = told_addresses("auto", away, named[:1], relayed, named=True)
    assert told == (*named[:1], *relayed)
    assert told_addresses("auto", away, named, relayed, named=True) == (*named[:2], *relayed)
    assert told_addresses("never", away, named, relayed, named=True) == named
