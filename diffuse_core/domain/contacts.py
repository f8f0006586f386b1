"""Contacts: places where nodes of the network may be found, and when to try which.

Three kinds: bootstrap addresses are what the user named, remembered ones are of nodes seen alive
before, and those of the LAN were announced there by whoever pleased. A contact rests while its
node is a live member or a link to it is open. Otherwise it is tried, ever more rarely:

- bootstrap addresses soon, and without an end: 15 s apart at most for a node that is alone,
  a minute apart for one that has neighbours;
- remembered nodes likewise for a node that is alone and got no answer from bootstrap; else one
  every SLOW_S, so that a network that was torn apart for hours grows together again. One that
  fails while others answer is given up after about a day;
- those of the LAN soon while there are few neighbours, else as slowly as remembered ones.

Pure: the caller says what time it is and who is alive, dials what `due` gives, and reports back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from diffuse_core.domain.identity import NodeId

Source = Literal["bootstrap", "remembered", "lan"]

MAX_CONTACTS = 64
"""Of each kind."""
MAX_TRIES = 4
"""Contacts other than bootstrap addresses that are tried at a time."""
FEW = 3
"""With fewer neighbours than this a node is glad of every one on the LAN."""
GRACE_S = 2.0
"""How long bootstrap addresses may take before remembered nodes are asked as well."""
SLOW_S = 10.0
MAX_STRIKES = 24
"""After so many failures while other nodes answered a remembered node is forgotten."""

_FIRST_S = {"bootstrap": 0.2, "remembered": 0.5, "lan": 1.0}
_LONGEST_S = {"bootstrap": 15.0, "remembered": 30.0, "lan": 60.0}
_BOOTSTRAP_LONGEST_S = 60.0
_SLOW_FIRST_S = 30.0
_SLOW_LONGEST_S = 3600.0


@dataclass(eq=False)
class Contact:
    """A node, or an address where one is expected.

    `expected` is the id that must answer, when known from the start; `node` the one that did.
    """

    source: Source
    addresses: tuple[str, ...]
    expected: NodeId | None
    node: NodeId | None
    rests_until: float
    tries: int = 0
    strikes: int = 0
    last_try: float = 0.0
    jitter: float = 1.0
    trying: bool = False


class Contacts:
    """All contacts of one node."""

    def __init__(self, own: NodeId, rng: random.Random) -> None:
        self._own = own
        self._rng = rng
        self._contacts: dict[tuple[Source, object], Contact] = {}
        self._slow_at = 0.0
        self._given_up: set[NodeId | None] = set()

    def add(
        self, source: Source, addresses: tuple[str, ...], node: NodeId | None, now: float
    ) -> None:
        """Take in a contact; of one that is known the addresses are replaced."""
        if node == self._own or not addresses:
            return
        key = (source, node or addresses)
        known = self._contacts.get(key)
        if known is not None:
            known.addresses = addresses
            return
        mine = [
            (other, contact) for other, contact in self._contacts.items() if other[0] == source
        ]
        if len(mine) >= MAX_CONTACTS:
            # Made-up nodes can take the places of each other only, not of one that answered.
            worst = max(mine, key=lambda entry: entry[1].tries)
            if worst[1].tries == 0 or worst[1].trying:
                return
            del self._contacts[worst[0]]
        self._given_up.discard(node)
        waits = source == "remembered" and any(kind == "bootstrap" for kind, _ in self._contacts)
        rests = now + GRACE_S if waits else now
        self._contacts[key] = Contact(source, addresses, node, node, rests)

    def remove(self, contact: Contact) -> None:
        """Never try it again."""
        self._contacts.pop((contact.source, contact.expected or contact.addresses), None)

    def withdraw(self, source: Source, addresses: tuple[str, ...], node: NodeId | None) -> None:
        """Undo `add`."""
        self._contacts.pop((source, node or addresses), None)

    def given_up(self, node: NodeId) -> bool:
        """Whether a remembered node failed too often."""
        return node in self._given_up

    def due(
        self, now: float, live: Collection[NodeId], linked: Collection[NodeId]
    ) -> list[Contact]:
        """What is to be tried now. Each must be reported as `answered` or `failed`.

        Args:
            now: monotonic seconds.
            live: members other than ourselves that are not dead.
            linked: nodes with an open link.
        """
        chosen = []
        busy = {contact.node for contact in self._contacts.values() if contact.trying} - {None}
        free = MAX_TRIES - sum(
            contact.trying and contact.source != "bootstrap" for contact in self._contacts.values()
        )
        # Those that waited longest come first, and of those never tried the most useful.
        for contact in sorted(self._contacts.values(), key=lambda contact: contact.last_try):
            if contact.node in live:
                contact.tries = contact.strikes = 0
            if contact.trying or contact.node in live or contact.node in linked:
                continue
            if contact.node in busy or self._due_at(contact, len(live)) > now:
                continue
            if contact.source != "bootstrap":
                if free <= 0 or (self._is_slow(contact, len(live)) and now < self._slow_at):
                    continue
                free -= 1
                self._slow_at = now + SLOW_S * (0.75 + self._rng.random() / 2)
            contact.trying, contact.last_try = True, now
            if contact.node is not None:
                busy.add(contact.node)
            chosen.append(contact)
        return chosen

    def answered(self, contact: Contact, node: NodeId) -> None:
        """`node` was reached there. It counts as a success once it is a live member."""
        contact.node = node
        self._tried(contact)

    def failed(self, contact: Contact, *, alone: bool) -> None:
        """Nobody was reached there; `alone` says that nobody else was alive either."""
        self._tried(contact)
        if not alone:
            contact.strikes += 1
        if contact.source == "remembered" and contact.strikes >= MAX_STRIKES:
            self.remove(contact)
            self._given_up.add(contact.expected)

    def _tried(self, contact: Contact) -> None:
        contact.trying = False
        contact.tries = min(contact.tries + 1, 32)
        contact.jitter = 0.75 + self._rng.random() / 2

    def _is_slow(self, contact: Contact, neighbours: int) -> bool:
        if contact.source == "bootstrap":
            return False
        return neighbours >= (FEW if contact.source == "lan" else 1)

    def _due_at(self, contact: Contact, neighbours: int) -> float:
        if contact.tries == 0:
            slow = self._is_slow(contact, neighbours) and contact.source == "remembered"
            return contact.rests_until + (_SLOW_FIRST_S if slow else 0.0)
        first, longest = _FIRST_S[contact.source], _LONGEST_S[contact.source]
        if self._is_slow(contact, neighbours):
            first, longest = _SLOW_FIRST_S, _SLOW_LONGEST_S
        elif contact.source == "bootstrap" and neighbours:
            longest = _BOOTSTRAP_LONGEST_S
        return contact.last_try + contact.jitter * min(first * 2.0 ** (contact.tries - 1), longest)
