"""Every message of the wire, strictly typed and bounded.

Messages are msgspec tagged structs in msgpack. Fields may be added with a default: older minor
versions ignore what they do not know. Tensors and bundle parts follow a message as raw bytes (see
domain.codec); nothing here is ever unpickled or evaluated.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.domain.buckets import BUCKETS, SUMMARY_BYTES
from diffuse_core.domain.decoding import MAX_TOKENS, DecodingParams, FinishReason, TokenId
from diffuse_core.domain.identity import WireNodeId
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
from diffuse_core.domain.view import FeedUpdate, GenerateEvent, GenerateRequest, Liveness
from diffuse_core.domain.wire import Message, Nonce, Text
from diffuse_core.errors import RefusalReason

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 2

MAX_DIGEST = 4096
MAX_PUSH = 64
MAX_WANT = 64
MAX_STAGES = 64
MAX_ROWS = 8192

WireSessionId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


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


class Ack(Message, frozen=True, tag="ack"):
    """Answer to a Ping, or to a PingRequest on behalf of its target."""

    nonce: Nonce
    rumours: Rumours = ()
    clock: ClockMs = 0


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

    `index` is the receiver's place in `route`. `credits` is how many tokens the last Stage may
    send ahead of the Client's grants.
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


class SessionOpened(Message, frozen=True, tag="opened"):
    """The Stage admitted the Session and reached the next one."""

    session: WireSessionId


class SessionRefused(Message, frozen=True, tag="refused"):
    """The Stage will not run the Session; nothing was kept."""

    session: WireSessionId
    reason: RefusalReason
    detail: Text = ""


class ForwardTokens(Message, frozen=True, tag="tokens"):
    """Token ids for the first Stage: a prompt chunk from the Client, or the ring's next token."""

    session: WireSessionId
    position: Position
    tokens: Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    want_token: bool


class ForwardHidden(Message, frozen=True, tag="hidden"):
    """Hidden states (rows, width) from the Stage before; the raw bytes follow the message."""

    session: WireSessionId
    position: Position
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    width: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    dtype: Literal["fp32", "bf16"]
    want_token: bool


class TokenDrawn(Message, frozen=True, tag="token"):
    """Last Stage to Client: the token at `position`, and why it was the last one, if it was."""

    session: WireSessionId
    position: Position
    token: TokenId
    finish: FinishReason | None = None


class Credit(Message, frozen=True, tag="credit"):
    """Client to last Stage: so many more tokens may be sent."""

    session: WireSessionId
    tokens: Annotated[int, msgspec.Meta(ge=1, le=4096)]


class RowsRun(Message, frozen=True, tag="ran"):
    """A Stage to the one before it: so many more rows of the Session had their pass here."""

    session: WireSessionId
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]


class CloseSession(Message, frozen=True, tag="close"):
    """Client to every Stage: free everything of this Session."""

    session: WireSessionId


class WatchSession(Message, frozen=True, tag="watch"):
    """Client to a Stage, when no token came for a while: do you still hold this Session?"""

    session: WireSessionId


class SessionAlive(Message, frozen=True, tag="alive"):
    """Answer to WatchSession: it is held, and this node is responsive."""

    session: WireSessionId


class SessionFailed(Message, frozen=True, tag="failed"):
    """A Stage to the Client: the Session cannot go on. `node` is who is to blame."""

    session: WireSessionId
    node: WireNodeId
    reason: RefusalReason
    detail: Text = ""


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


# --- the owner's feed ----------------------------------------------------------------------

RequestId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class Subscribe(Message, frozen=True, tag="subscribe"):
    """Owner to node: send FeedUpdates until the channel ends."""


class Update(Message, frozen=True, tag="update"):
    """Node to owner: one tick of the feed."""

    feed: FeedUpdate


class Generate(Message, frozen=True, tag="generate"):
    """Owner to node: generate on my behalf."""

    request: RequestId
    ask: GenerateRequest


class Generated(Message, frozen=True, tag="generated"):
    """Node to owner: an event of a generation; Finished and Failed are the last."""

    request: RequestId
    event: GenerateEvent


class CancelGenerate(Message, frozen=True, tag="cancel"):
    """Owner to node: stop that generation."""

    request: RequestId


class StopNode(Message, frozen=True, tag="stopnode"):
    """Owner to node: shut down in an orderly way.

    `patience` is how many seconds Sessions may take to finish; None leaves it to the Host.
    """

    patience: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] | None = None


class NotAllowed(Message, frozen=True, tag="notallowed"):
    """The receiver does not take this from you."""

    detail: Text = ""


GossipMessage = Ping | Ack | PingRequest | Pull | Push | Want | Summary
SessionMessage = (
    OpenSession
    | SessionOpened
    | SessionRefused
    | ForwardTokens
    | ForwardHidden
    | TokenDrawn
    | Credit
    | RowsRun
    | CloseSession
    | WatchSession
    | SessionAlive
    | SessionFailed
)
BundleMessage = GetBundle | BundlePart
OwnerMessage = Subscribe | Update | Generate | Generated | CancelGenerate | StopNode | NotAllowed
AnyMessage = GossipMessage | SessionMessage | BundleMessage | RelayMessage | OwnerMessage
