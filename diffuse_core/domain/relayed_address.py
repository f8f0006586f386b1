"""Relayed addresses: where a node that cannot be dialled is met, through a sentinel.

Written `relay:SENTINEL@HOST:PORT`, where SENTINEL is the sentinel's node id in hexadecimal and
HOST:PORT is where that can be dialled. They stand in records and routes beside other addresses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from diffuse_core.domain.identity import NodeId

SCHEME = "relay:"
MAX_DIRECT_CHARS = 120
"""Of the HOST:PORT inside, so that all of it fits a record's address."""

_FORM = re.compile(f"{SCHEME}([0-9a-f]{{64}})@(.{{3,{MAX_DIRECT_CHARS}}})")


@dataclass(frozen=True)
class RelayedAddress:
    """Through which sentinel a node is met, and where that can be dialled."""

    sentinel: NodeId
    address: str

    def __str__(self) -> str:
        """As records carry it."""
        return f"{SCHEME}{self.sentinel.hex()}@{self.address}"


def parse_relayed(text: str) -> RelayedAddress | None:
    """The relayed address that `text` is; None when it is another kind of address, or none."""
    match = _FORM.fullmatch(text)
    if match is None or is_relayed(match[2]):
        return None
    return RelayedAddress(NodeId(bytes.fromhex(match[1])), match[2])


def is_relayed(text: str) -> bool:
    """Whether `text` means to be a relayed address, well-formed or not."""
    return text.startswith(SCHEME)
