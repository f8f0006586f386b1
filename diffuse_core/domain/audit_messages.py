"""Messages of audits: another node computes again what a Stage computed.

See domain.messages, of which these are a part. An audit is a Session of its own on that node. It
gets its rows from the Stage before, which kept them; so nobody else has to send them again.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from diffuse_core.domain.decoding import MAX_TOKENS
from diffuse_core.domain.identity import WireNodeId
from diffuse_core.domain.spots import MAX_SPOTS, TOLD_ROWS
from diffuse_core.domain.wire import Message, WireSessionId

Row = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Coordinates = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**20)], ...],
    msgspec.Meta(max_length=MAX_SPOTS),
]
"""Places in a hidden state."""


class Mirror(Message, frozen=True, tag="mirror"):
    """Client to a Stage: `node` may take what you gave to the next one, as `audit`'s rows.

    That is an audit's Session on `node`. The first `rows` rows are meant.
    """

    session: WireSessionId
    audit: WireSessionId
    node: WireNodeId
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class MirrorReady(Message, frozen=True, tag="mirrored"):
    """Answer to Mirror: so many of the rows are there; 0 for none, or when it may not be."""

    audit: WireSessionId
    rows: Row


class TakeMirror(Message, frozen=True, tag="takemirror"):
    """The node of an audit's Session to the Stage before: I am ready for the rows."""

    audit: WireSessionId


class TellSpots(Message, frozen=True, tag="tellspots"):
    """Client to a Stage: tell the numbers of these rows, at few coordinates.

    Of the rows that it took, at those coordinates that it was opened with; with `spots` of those
    that it gave, or would have given in an audit. The last Stage of an audit tells two numbers
    for each token that was drawn, counted from 0: what it would have drawn, and how far that
    token was out of reach (see domain.examiner).
    """

    session: WireSessionId
    position: Row
    rows: Annotated[int, msgspec.Meta(ge=1, le=TOLD_ROWS)]
    spots: Coordinates = ()
    given: bool = False


class Spots(Message, frozen=True, tag="spots"):
    """Answer to TellSpots: as many numbers follow, fp32, as there are of these rows."""

    session: WireSessionId
    position: Row
    given: bool = False


AuditMessage = Mirror | MirrorReady | TakeMirror | TellSpots | Spots
