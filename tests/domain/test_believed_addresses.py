"""Which addresses a node believes that it was reached at, and what that says of others."""

from __future__ import annotations

import pytest

from diffuse_core.domain.reachability import Verdict
from tests.domain.domain_samples import ordered
from tests.domain.test_reachability import PORT, PRIVATE, PUBLIC, Asking

LIAR, B, C = (ordered(number) for number in range(1, 4))
ELSEWHERE = f"8.8.8.8:{PORT}"
LAN = "192.168.1.9:50000"
OUTSIDE = "9.9.9.9:50000"


@pytest.fixture
def asking() -> Asking:
    """A node that met three sentinels which its user did not name, and asked them."""
    made = Asking(PRIVATE)
    made.others = [LIAR, B, C]
    assert set(made.ask_all()) == {LIAR, B, C}
    return made


def came(asking: Asking, node: bytes, address: str, came_from: str) -> None:
    asking.backs.answered(node, True, address, met=True, now=asking.now, came_from=came_from)


@pytest.mark.parametrize("address", [ELSEWHERE, PUBLIC])
@pytest.mark.parametrize("came_from", [LAN, "", "mem", "[fe80::1%eth0]:1"])
@pytest.mark.parametrize("first", [True, False])
def test_one_on_the_lan_talks_nobody_into_a_public_address(
    asking: Asking, address: str, came_from: str, first: bool
) -> None:
    if first:
        came(asking, LIAR, address, came_from)
    asking.says(B, False)
    asking.says(C, False)
    if not first:
        came(asking, LIAR, address, came_from)
    assert asking.verdict.reached == ()
    assert set(asking.verdict.unreached) == {(B, PUBLIC), (C, PUBLIC)}


def test_alone_it_is_not_believed_either(asking: Asking) -> None:
    came(asking, LIAR, ELSEWHERE, LAN)
    asking.backs.silent(B, asking.now)
    asking.backs.silent(C, asking.now)
    assert asking.verdict == Verdict()


def test_two_that_name_the_same_are_believed(asking: Asking) -> None:
    came(asking, LIAR, ELSEWHERE, LAN)
    came(asking, B, PUBLIC, LAN)
    assert asking.verdict == Verdict()
    came(asking, C, PUBLIC, "")
    assert asking.verdict == Verdict((PUBLIC,))


def test_one_that_the_user_named_is_believed_as_long_as_it_is_named(asking: Asking) -> None:
    asking.trusted = [B]
    asking.due()
    came(asking, B, PUBLIC, LAN)
    asking.says(LIAR, False, ELSEWHERE)
    asking.says(C, False, PRIVATE)
    assert asking.verdict == Verdict((PUBLIC,))
    asking.trusted = []
    asking.due()
    asking.backs.silent(C, asking.now)
    asking.next_ask()
    asking.says(LIAR, False, ELSEWHERE)
    assert set(asking.verdict.unreached) == {(LIAR, ELSEWHERE), (C, PRIVATE)}


def test_one_that_came_in_from_outside_tells_of_its_own_address_only(asking: Asking) -> None:
    came(asking, LIAR, ELSEWHERE, OUTSIDE)
    assert asking.verdict == Verdict((ELSEWHERE,))
    asking.says(B, False)
    asking.says(C, False, ELSEWHERE)
    assert asking.verdict == Verdict((ELSEWHERE,), ((B, PUBLIC),))


def test_a_private_address_tells_of_the_private_range_only(asking: Asking) -> None:
    came(asking, LIAR, PRIVATE, LAN)
    came(asking, B, PRIVATE, LAN)
    asking.says(C, False)
    assert asking.verdict == Verdict((PRIVATE,), ((C, PUBLIC),))


def test_surely_reached_is_reached_wherever_a_liar_says_that_it_tried(asking: Asking) -> None:
    came(asking, B, PUBLIC, OUTSIDE)
    came(asking, C, PUBLIC, OUTSIDE)
    asking.says(LIAR, False, ELSEWHERE)
    assert asking.verdict == Verdict((PUBLIC,))
