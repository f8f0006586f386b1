"""Every message of the wire, strictly typed and bounded.

Messages are msgspec tagged structs in msgpack. Fields may be added with a default: older minor
versions ignore what they do not know. Tensors and bundle parts follow a message as raw bytes (see
domain.codec); nothing here is ever unpickled or evaluated.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from diffuse_core.domain.audit_messages import AuditMessage, Coordinates
from diffuse_core.domain.buckets import BUCKETS, SUMMARY_BYTES
from diffuse_core.domain.coordinates import Coordinate
from diffuse_core.domain.decoding import (
    MAX_TOKENS,
    DecodingParams,
    FinishReason,
    TokenId,
    TokenLogprobs,
)
from diffuse_core.domain.identity import WireNodeId
from diffuse_core.domain.owner_messages import OwnerMessage
from diffuse_core.domain.records import (
    MAX_CLOCK_MS,
    Address,
    Digest32,
    ModelId,
    Sequence,
    SignedRecord,
)
from diffuse_core.domain.relay_messages import RelayMessage
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Liveness
from diffuse_core.domain.wire import Message, Nonce, Text, WireSessionId
from diffuse_core.errors import RefusalReason

PROTOCOL_MAJOR = 2
PROTOCOL_MINOR = 1
"""Nodes of one major version and any two minor ones work together; `tests.wire` holds us to it.

The minor grows by one per release that adds something: a kind of message, which older nodes
ignore; a field with a default, the last one in an array; a word in a Literal or a wider bound
that only who asked for it is sent. Nothing may rest on what older nodes do not understand.
The major grows with any other change: of a field's name, type, order, bound or meaning, of the
handshake or the framing. Before either, `python -m tests.wire record` keeps what was written.
2.1 added tools to requests, and calls of them to chat messages.
"""

MAX_DIGEST = 4096
MAX_PUSH = 64
MAX_WANT = 64
MAX_STAGES = 64
MAX_ROWS = 8192
MAX_DRAFTS = 31
"""Tokens that may be guessed ahead in one pass."""
MARK_BYTES = 12
"""Of one Stage, on the way of a token whose times are measured (see domain.waterfall)."""

Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**16)]
"""How often a Session's Route was changed; rows of an earlier Route are not listened to."""
Drafts = Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=MAX_DRAFTS)]
Marks = Annotated[bytes, msgspec.Meta(max_length=MARK_BYTES * MAX_STAGES + 4)]

# What goes round with every token has names of one letter: a hop is to cost few bytes.
_SHORT = {
    "session": "s",
    "position": "p",
    "tokens": "k",
    "rows": "r",
    "drafts": "d",
    "epoch": "e",
    "marks": "m",
    "finish": "f",
    "logprobs": "l",
}


# --- gossip and liveness -------------------------------------------------------------------


class Rumour(msgspec.Struct, frozen=True, array_like=True):
    """What the sender knows of a node: the sequence of its record, and whether it lives.

    A later sequence than the receiver's own announces a record that it may ask for (Want).
    """

    node: WireNodeId
    sequence: Sequence
    liveness: Liveness


Rumours = Annotated[tuple[Rumour, ...], msgspec.Meta(max_length=MAX_PUSH)]
Digest = Annotated[tuple[Rumour, ...], msgspec.Meta(max_length=MAX_DIGEST)]
ClockMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_CLOCK_MS)]
"""The sender's wall clock, Unix time in milliseconds; 0 says nothing."""


class Ping(Message, frozen=True, tag="ping"):
    """Are you there? Rumours ride along (SWIM's piggyback)."""

    nonce: Nonce
    rumours: Rumours = ()
    clock: ClockMs = 0


class Ack(Message, frozen=True, tag="ack", omit_defaults=True):
    """Answer to a Ping, or to a PingRequest on behalf of its target.

    `place` is where the sender is: who measures a round trip learns at once what it is one to.
    """

    nonce: Nonce
    rumours: Rumours = ()
    clock: ClockMs = 0
    place: Coordinate | None = None


class PingRequest(Message, frozen=True, tag="pingreq"):
    """Please ping `target` for me (indirect probe), and pass its Ack on under my nonce."""

    nonce: Nonce
    target: WireNodeId


class Pull(Message, frozen=True, tag="pull"):
    """Here is what I know; push me what is newer. `reply` asks for a Pull back (push-pull).

    `buckets` limits it to nodes whose id begins with one of these bytes; then only announce it.
    """

    digest: Digest = ()
    reply: bool = False
    clock: ClockMs = 0
    buckets: Annotated[bytes, msgspec.Meta(max_length=BUCKETS)] = b""


class Push(Message, frozen=True, tag="push"):
    """Records, and beliefs about nodes. `last` closes the answer to one Pull."""

    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_PUSH)] = ()
    rumours: Digest = ()
    last: bool = True


class Want(Message, frozen=True, tag="want"):
    """Push me your records of these nodes, which you announced."""

    nodes: Annotated[tuple[WireNodeId, ...], msgspec.Meta(min_length=1, max_length=MAX_WANT)]


class Summary(Message, frozen=True, tag="summary"):
    """Hashes of all I hold, by bucket; pull what differs (see domain.buckets)."""

    hashes: Annotated[bytes, msgspec.Meta(min_length=SUMMARY_BYTES, max_length=SUMMARY_BYTES)]
    clock: ClockMs = 0


# --- sessions ------------------------------------------------------------------------------


class Hop(msgspec.Struct, frozen=True):
    """One Stage of a Route: who runs which layers, and where that node can be dialled."""

    node: WireNodeId
    addresses: Annotated[tuple[Address, ...], msgspec.Meta(max_length=4)]
    part: Slice


class OpenSession(Message, frozen=True, tag="open"):
    """Client to each Stage: hold KV for `budget` positions and know the whole Route.

    `session` is the Client's name for it; Stages have another among each other, which nobody else
    can take (domain.session.common_name).
    `index` is the receiver's place in `route`. `credits` is how many tokens the last Stage may
    send ahead of the Client's grants. `drawn` tokens were drawn before this Stage took its place
    in the Route; `past` are these tokens, and `seen` the ids of the prompt, sent to a last Stage
    only, and only where penalties need them. `timed` asks for marks (see domain.waterfall).
    A Stage that is opened at an `epoch` above 0 sends nothing on before it is told to (Resume).
    Of each row that it takes the Stage keeps the numbers at `spots`, for TellSpots.
    `audit` asks it to compute again what another Stage did, and to send nothing on at all: it
    gets what the Stage before gave to that one (TakeMirror), and a last Stage gets the tokens
    that were drawn (`past`), to tell what it would have drawn.
    """

    session: WireSessionId
    model: ModelId
    fingerprint: Digest32
    route: Annotated[tuple[Hop, ...], msgspec.Meta(min_length=1, max_length=MAX_STAGES)]
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_STAGES)]
    budget: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
    prompt: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
    decoding: DecodingParams
    credits: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    epoch: Epoch = 0
    drawn: Position = 0
    past: Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=MAX_TOKENS)] = ()
    seen: Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=MAX_TOKENS)] = ()
    timed: bool = False
    spots: Coordinates = ()
    audit: bool = False


class SessionOpened(Message, frozen=True, tag="opened"):
    """The Stage admitted the Session and reached the next one.

    It can run `drafts` guessed rows in one pass, each exactly as if it came alone.
    """

    session: WireSessionId
    epoch: Epoch = 0
    drafts: Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFTS)] = 0


class SessionRefused(Message, frozen=True, tag="refused"):
    """The Stage will not run the Session; nothing was kept."""

    session: WireSessionId
    reason: RefusalReason
    detail: Text = ""


class Reroute(Message, frozen=True, tag="reroute"):
    """Client to each Stage that stays: others take the place of Stages that were lost.

    The Stage keeps its KV, forgets guessed rows, reaches the next Stage of the new Route, and
    answers Rerouted. It sends nothing on before it is told to (Resume). `index` is its place in
    the new `route`; its own part is the same as before. The Client has `drawn` tokens: a last
    Stage that drew more first sends those again, which may have been lost with a link. Other
    Stages forget rows of later tokens: to them `drawn` is more where the last one stays.
    """

    session: WireSessionId
    epoch: Epoch
    route: Annotated[tuple[Hop, ...], msgspec.Meta(min_length=1, max_length=MAX_STAGES)]
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_STAGES)]
    drawn: Position = 0


class Rerouted(Message, frozen=True, tag="rerouted"):
    """A Stage to the Client: it follows the Route of `epoch`, and holds rows up to `held`."""

    session: WireSessionId
    epoch: Epoch
    held: Position


class Resume(Message, frozen=True, tag="resume"):
    """Client to a Stage: send on what you have, from row `position` on, and whatever comes.

    `position` is how many rows the next Stage holds. `drafts` is how many tokens the first Stage
    may guess at most; sent to it at epoch 0 as well.
    """

    session: WireSessionId
    epoch: Epoch
    position: Position = 0
    drafts: Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFTS)] = 0


class ForwardTokens(Message, frozen=True, tag="k", omit_defaults=True, rename=_SHORT):
    """Token ids for the first Stage: from the Client, or what was drawn, round the ring.

    They stand at `position` and after it.
    """

    session: WireSessionId
    position: Position
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    epoch: Epoch = 0
    marks: Marks = b""


class ForwardHidden(Message, frozen=True, tag="h", omit_defaults=True, rename=_SHORT):
    """Hidden states (rows, width) from the Stage before; the raw bytes follow the message.

    Their type and width are the model's. The last rows may be of `drafts`, guessed tokens that
    the last Stage accepts or not: the next rows' position tells which rows are void.
    """

    session: WireSessionId
    position: Position
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = 1
    drafts: Drafts = ()
    epoch: Epoch = 0
    marks: Marks = b""


class TokensDrawn(Message, frozen=True, tag="d", omit_defaults=True, rename=_SHORT):
    """Last Stage to Client: tokens from `position` on; why the last one ended it, if it did."""

    session: WireSessionId
    position: Position
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1, max_length=MAX_DRAFTS + 1)]
    finish: FinishReason | None = None
    logprobs: Annotated[tuple[TokenLogprobs, ...], msgspec.Meta(max_length=MAX_DRAFTS + 1)] = ()
    marks: Marks = b""


class Credit(Message, frozen=True, tag="credit"):
    """Client to last Stage: so many more tokens may be sent."""

    session: WireSessionId
    tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)]


class RowsRun(Message, frozen=True, tag="ran"):
    """A Stage to the one before it: so many more rows of the Session had their pass here."""

    session: WireSessionId
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    epoch: Epoch = 0


class CloseSession(Message, frozen=True, tag="close"):
    """Client to every Stage: free everything of this Session."""

    session: WireSessionId


class WatchSession(Message, frozen=True, tag="watch"):
    """Client to every Stage, time and again: I am here; do you still hold this Session?

    A Stage that does not hear it for a while frees the Session. Stages ask each other as well.
    """

    session: WireSessionId


class SessionAlive(Message, frozen=True, tag="alive"):
    """Answer to WatchSession: it is held, and this node is responsive.

    Rows that arrived, that had their pass, and that were sent on, guessed ones not counted.
    """

    session: WireSessionId
    received: Position = 0
    ran: Position = 0
    sent: Position = 0


class SessionFailed(Message, frozen=True, tag="failed"):
    """A Stage to the Client: the Session cannot go on. `node` is who is to blame.

    `kept` says that the sender holds its own part still, and waits for a Reroute. `epoch` is that
    of the Route on which it failed.
    """

    session: WireSessionId
    node: WireNodeId
    reason: RefusalReason
    detail: Text = ""
    kept: bool = False
    epoch: Epoch = 0


# --- tokenizer bundles ---------------------------------------------------------------------


class GetBundle(Message, frozen=True, tag="getbundle"):
    """Client to Host: send the bundle from `offset` on."""

    digest: Digest32
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**27)]


class BundlePart(Message, frozen=True, tag="bundle"):
    """A piece of a bundle; the raw bytes follow. `total` 0 means: not held here."""

    digest: Digest32
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**27)]
    total: Annotated[int, msgspec.Meta(ge=0, le=2**27)]


GossipMessage = Ping | Ack | PingRequest | Pull | Push | Want | Summary
SessionMessage = (
    OpenSession
    | SessionOpened
    | SessionRefused
    | Reroute
    | Rerouted
    | Resume
    | ForwardTokens
    | ForwardHidden
    | TokensDrawn
    | Credit
    | RowsRun
    | CloseSession
    | WatchSession
    | SessionAlive
    | SessionFailed
)
BundleMessage = GetBundle | BundlePart
AnyMessage = (
    GossipMessage | SessionMessage | AuditMessage | BundleMessage | RelayMessage | OwnerMessage
)
