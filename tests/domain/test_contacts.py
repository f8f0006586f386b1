"""Which places are tried when, under a virtual clock."""

from __future__ import annotations

import itertools
import random

import pytest

from diffuse_core.domain.contacts import (
    FEW,
    GRACE_S,
    MAX_CONTACTS,
    MAX_STRIKES,
    MAX_TRIES,
    SLOW_S,
    Contact,
    Contacts,
)
from tests.domain.domain_samples import ordered

OWN, A, B, C, D = (ordered(number) for number in range(1, 6))
COMPANY = {C, D, ordered(9)}


class Trial:
    """Contacts, and a clock that stops whenever something is due."""

    def __init__(self, seed: int = 1) -> None:
        self.contacts = Contacts(OWN, random.Random(seed))
        self.now = 100.0
        self.live: set = set()

    def due(self, linked: set | None = None) -> list[Contact]:
        return self.contacts.due(self.now, self.live, linked or set())

    def fails_for(self, seconds: float, step: float = 0.05) -> list[tuple[float, str]]:
        """Let everything that is tried fail at once; when what was tried."""
        end, tried = self.now + seconds, []
        while self.now < end:
            for contact in self.due():
                tried.append((self.now, contact.addresses[0]))
                self.contacts.failed(contact, alone=not self.live)
            self.now += step
        return tried


def gaps(tried: list[tuple[float, str]], address: str) -> list[float]:
    times = [when for when, whom in tried if whom == address]
    return [b - a for a, b in itertools.pairwise(times)]


@pytest.fixture
def trial() -> Trial:
    return Trial()


def test_all_bootstrap_addresses_are_tried_at_once(trial: Trial) -> None:
    for address in ("a:1", "b:1", "c:1"):
        trial.contacts.add("bootstrap", (address,), None, trial.now)
    assert [contact.addresses for contact in trial.due()] == [("a:1",), ("b:1",), ("c:1",)]
    assert trial.due() == []


def test_who_is_alone_keeps_trying_with_longer_and_longer_pauses_and_never_gives_up(
    trial: Trial,
) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    pauses = gaps(trial.fails_for(600), "a:1")
    assert pauses[0] < 0.5
    assert all(pause <= 15 * 1.25 + 0.1 for pause in pauses)
    assert all(pause >= 15 * 0.75 for pause in pauses[-10:])
    assert len(set(pauses[-10:])) > 5  # Jitter: nodes that lost the same sentinel do not march.


def test_in_company_an_address_that_is_lost_is_tried_rarely(trial: Trial) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    trial.live = COMPANY
    pauses = gaps(trial.fails_for(1200), "a:1")
    assert min(pauses[-5:]) > 40
    assert max(pauses) < 80


def test_being_alone_again_shortens_the_pause_at_once(trial: Trial) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    trial.live = COMPANY
    trial.fails_for(600)
    trial.live = set()
    assert trial.fails_for(20)


def test_a_contact_rests_while_its_node_lives_or_is_linked(trial: Trial) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    (contact,) = trial.due()
    trial.contacts.answered(contact, A)
    trial.live = {A}
    trial.now += 1000
    assert trial.due() == []
    trial.live = set()
    assert trial.due(linked={A}) == []
    assert trial.due() == [contact]


def test_one_that_answers_and_never_becomes_a_member_is_not_hammered(trial: Trial) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    tries = 0
    for _ in range(6000):
        for contact in trial.due():
            trial.contacts.answered(contact, A)
            tries += 1
        trial.now += 0.1
    assert tries < 60


def test_remembered_nodes_wait_for_bootstrap_to_answer(trial: Trial) -> None:
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    trial.contacts.add("remembered", ("b:1",), B, trial.now)
    tried = trial.fails_for(GRACE_S + 1)
    assert next(when for when, whom in tried if whom == "b:1") >= 100 + GRACE_S


def test_remembered_nodes_are_tried_at_once_without_bootstrap(trial: Trial) -> None:
    trial.contacts.add("remembered", ("b:1",), B, trial.now)
    (contact,) = trial.due()
    assert contact.expected == B


def test_few_contacts_are_tried_at_a_time(trial: Trial) -> None:
    for number in range(20):
        trial.contacts.add("remembered", (f"n:{number}",), ordered(20 + number), trial.now)
    assert len(trial.due()) == MAX_TRIES


def test_in_company_remembered_nodes_are_tried_slowly_so_that_halves_grow_together(
    trial: Trial,
) -> None:
    for number in range(30):
        trial.contacts.add("remembered", (f"n:{number}",), ordered(20 + number), trial.now)
    trial.live = COMPANY
    tried = trial.fails_for(600, step=0.25)
    times = [when for when, _ in tried]
    assert min(b - a for a, b in itertools.pairwise(times)) >= SLOW_S * 0.75 - 0.3
    assert len({whom for _, whom in tried}) > 25


def test_a_remembered_node_that_fails_while_others_answer_is_given_up(trial: Trial) -> None:
    trial.contacts.add("remembered", ("b:1",), B, trial.now)
    trial.fails_for(3600, step=1)
    assert not trial.contacts.given_up(B)
    trial.live = COMPANY
    tried = trial.fails_for(48 * 3600, step=30)
    assert len(tried) == MAX_STRIKES
    assert trial.contacts.given_up(B)
    assert tried[-1][0] - tried[0][0] > 12 * 3600
    # Seen alive again, it is remembered again.
    trial.contacts.add("remembered", ("b:1",), B, trial.now)
    assert not trial.contacts.given_up(B)


def test_who_is_alone_never_gives_a_remembered_node_up(trial: Trial) -> None:
    trial.contacts.add("remembered", ("b:1",), B, trial.now)
    tried = trial.fails_for(24 * 3600, step=5)
    assert not trial.contacts.given_up(B)
    assert max(gaps(tried, "b:1")) < 50


def test_nodes_of_the_lan_are_tried_at_once_when_neighbours_are_few(trial: Trial) -> None:
    trial.live = set(list(COMPANY)[: FEW - 1])
    trial.contacts.add("lan", ("l:1",), A, trial.now)
    trial.contacts.add("lan", ("l:2",), B, trial.now)
    assert len(trial.due()) == 2


def test_nodes_of_the_lan_come_slowly_into_company(trial: Trial) -> None:
    trial.live = COMPANY
    for number in range(10):
        trial.contacts.add("lan", (f"l:{number}",), ordered(20 + number), trial.now)
    times = [when for when, _ in trial.fails_for(100, step=0.25)]
    assert len(times) >= 5
    assert min(b - a for a, b in itertools.pairwise(times)) >= SLOW_S * 0.75 - 0.3


def test_a_flood_of_made_up_nodes_is_bounded_and_cannot_lock_a_real_one_out(trial: Trial) -> None:
    for number in range(1000):
        trial.contacts.add("lan", (f"fake:{number}",), ordered(number % 256), trial.now)
        trial.contacts.add("lan", (f"fake:{number}",), None, trial.now)
    assert len(trial.contacts._contacts) <= MAX_CONTACTS
    tried = trial.fails_for(60)
    assert len(tried) < 60 * MAX_TRIES / 0.5
    trial.contacts.add("lan", ("real:1",), ordered(200), trial.now)
    assert any(whom == "real:1" for _, whom in trial.fails_for(5))


def test_one_node_is_dialled_once_at_a_time_whoever_told_of_it(trial: Trial) -> None:
    trial.contacts.add("remembered", ("a:1",), A, trial.now)
    trial.contacts.add("lan", ("l:1",), A, trial.now)
    assert len(trial.due()) == 1


def test_ourselves_and_the_homeless_are_no_contacts(trial: Trial) -> None:
    trial.contacts.add("remembered", ("a:1",), OWN, trial.now)
    trial.contacts.add("lan", (), A, trial.now)
    assert trial.due() == []


def test_what_is_withdrawn_or_removed_is_tried_no_more(trial: Trial) -> None:
    trial.contacts.add("lan", ("l:1",), A, trial.now)
    trial.contacts.withdraw("lan", ("l:1",), A)
    trial.contacts.add("bootstrap", ("a:1",), None, trial.now)
    (contact,) = trial.due()
    trial.contacts.remove(contact)
    trial.now += 1000
    assert trial.due() == []


def test_a_known_node_may_move(trial: Trial) -> None:
    trial.contacts.add("lan", ("l:1",), A, trial.now)
    trial.contacts.add("lan", ("l:2",), A, trial.now)
    (contact,) = trial.due()
    assert contact.addresses == ("l:2",)


def test_a_flood_that_came_before_anything_was_tried_keeps_its_places(trial: Trial) -> None:
    for number in range(MAX_CONTACTS + 1):
        trial.contacts.add("lan", (f"fake:{number}",), ordered(number), trial.now)
    assert len(trial.contacts._contacts) == MAX_CONTACTS


def test_a_contact_of_the_lan_that_fails_is_kept_until_it_is_withdrawn(trial: Trial) -> None:
    trial.contacts.add("lan", ("l:1",), A, trial.now)
    trial.live = COMPANY
    assert len(trial.fails_for(48 * 3600, step=30)) > MAX_STRIKES
