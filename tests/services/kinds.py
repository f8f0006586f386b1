"""One sound message of every kind that there is on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.audit_messages import (
    Mirror,
    MirrorReady,
    Spots,
    TakeMirror,
    TellSpots,
)
from diffuse_core.domain.buckets import SUMMARY_BYTES
from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import (
    Ack,
    BundlePart,
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    GetBundle,
    Hop,
    OpenSession,
    Ping,
    PingRequest,
    Pull,
    Push,
    Reroute,
    Rerouted,
    Resume,
    RowsRun,
    SessionAlive,
    SessionFailed,
    SessionOpened,
    SessionRefused,
    Summary,
    TokensDrawn,
    Want,
    WatchSession,
)
from diffuse_core.domain.owner_messages import (
    CancelGenerate,
    Generate,
    Generated,
    NotAllowed,
    StopNode,
    Subscribe,
    Update,
)
from diffuse_core.domain.relay_messages import (
    AskDialBack,
    CircuitOffered,
    CircuitReady,
    DeclineCircuit,
    DialledBack,
    JoinCircuit,
    OpenCircuit,
    RelayRefused,
    Release,
    Reserve,
    Reserved,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import Failed, FeedUpdate, GenerateRequest, NetworkView

if TYPE_CHECKING:
    from diffuse_core.domain.messages import AnyMessage

SOMEBODY = Identity(b"?" * 32).node
SESSION = b"s" * 16
DIGEST = "0" * 64


def every_kind() -> list[AnyMessage]:
    """They name sessions, nodes, bundles and circuits that nobody has."""
    whole = Slice(0, 10)
    hop = Hop(SOMEBODY, (), whole)
    return [
        Ping(1),
        Ack(1),
        PingRequest(1, SOMEBODY),
        Pull(),
        Push(),
        Want((SOMEBODY,)),
        Summary(bytes(SUMMARY_BYTES)),
        OpenSession(SESSION, "tiny", DIGEST, (hop,), 0, 40, 5, DecodingParams(20), 20),
        SessionOpened(SESSION),
        SessionRefused(SESSION, "busy"),
        Reroute(SESSION, 1, (hop,), 0),
        Rerouted(SESSION, 1, 0),
        Resume(SESSION, 1),
        ForwardTokens(SESSION, 0, (1,)),
        ForwardHidden(SESSION, 0),
        TokensDrawn(SESSION, 0, (1,)),
        Credit(SESSION, 1),
        RowsRun(SESSION, 1),
        CloseSession(SESSION),
        WatchSession(SESSION),
        SessionAlive(SESSION),
        SessionFailed(SESSION, SOMEBODY, "lost"),
        Mirror(SESSION, SESSION, SOMEBODY, 1),
        MirrorReady(SESSION, 0),
        TakeMirror(SESSION),
        TellSpots(SESSION, 0, 1),
        Spots(SESSION, 0),
        GetBundle(DIGEST, 0),
        BundlePart(DIGEST, 0, 0),
        AskDialBack(1, 9440),
        DialledBack(1, reached=True, address="192.0.2.1:9440"),
        Reserve(),
        Reserved(60),
        Release(),
        RelayRefused("busy"),
        OpenCircuit(SOMEBODY),
        CircuitOffered(SESSION, SOMEBODY),
        JoinCircuit(SESSION),
        DeclineCircuit(SESSION),
        CircuitReady(),
        Subscribe(),
        Update(
            FeedUpdate(
                view=NetworkView(taken_at=0.0, me=None, nodes=(), models=()), telemetry=None
            )
        ),
        Generate(1, GenerateRequest(model="tiny", raw="a")),
        Generated(1, Failed("nothing", 1)),
        CancelGenerate(1),
        StopNode(0.0),
        NotAllowed("nothing for you"),
    ]
