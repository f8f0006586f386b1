"""Three hostile nodes that speak the session protocol to a Stage, as the steps of a script say.

Every argument makes a valid message: its bytes choose fields out of what may matter there.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from diffuse_core.domain.audit_messages import Mirror, TakeMirror, TellSpots
from diffuse_core.domain.codec import encode
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.messages import (
    CloseSession,
    Credit,
    ForwardHidden,
    ForwardTokens,
    Hop,
    OpenSession,
    Reroute,
    Resume,
    RowsRun,
    WatchSession,
)
from diffuse_core.domain.session import common_name
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ChannelClosed, Unreachable
from tests.fuzz.hostile_ends import NODES
from tests.fuzz.script import steps
from tests.fuzz.stage import settle

if TYPE_CHECKING:
    from diffuse_core.adapters.memory_transport import MemoryChannel, MemoryNetwork
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.ports import Channel
    from diffuse_core.services.stage import StageService
    from diffuse_core.services.stage_run import StageRun

PEERS = NODES[:3]
SESSIONS = tuple(bytes([number]) * 16 for number in (1, 2, 3))
LAYERS, WIDTH, VOCAB, CONTEXT = 4, 4, 16, 700
PRINT = "a" * 64
KINDS = 16
AT_ONCE = 144
"""From this number on a step is followed by the next one before anything was heard of it."""
_CUTS = ((4,), (2, 4), (1, 3, 4), (1, 2, 3, 4), (3, 4))
_COUNTS = (1, 2, 5, 8, 9, 32, 255, 256, 257, 512, 1024)
_FULL = 60


class Act(IntEnum):
    """What is done next; the rest of a step's number says by whom."""

    OPEN = 0
    REROUTE = 1
    RESUME = 2
    TOKENS = 3
    HIDDEN = 4
    RAN = 5
    CREDIT = 6
    CLOSE = 7
    WATCH = 8
    MIRROR = 9
    TAKE = 10
    TELL = 11
    BREAK = 12
    STALL = 13
    WAIT = 14
    DIAL = 15


def did(act: Act, peer: int = 0, *fields: int) -> tuple[int, bytes]:
    """A step of a script."""
    return act + KINDS * peer, bytes(fields)


def _called(message: AnyMessage) -> str:
    return "audit" if isinstance(message, TakeMirror) else "session"


class Fields:
    """Bytes that choose; 0 when there are no more."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def byte(self) -> int:
        return next(self._data, 0)

    def count(self) -> int:
        """A number of rows, small or one at which something may end."""
        byte = self.byte()
        return byte % 16 if byte < 128 else _COUNTS[byte % len(_COUNTS)]

    def near(self, number: int) -> int:
        """A number, mostly this one."""
        byte = self.byte()
        if byte < 192:
            return number
        return (
            max(0, number + byte - 224) if byte < 250 else (0, 1, 256, 300, 600, 2**20)[byte - 250]
        )


class StagePeers:
    """The three nodes; all is read at once, but by those that stall."""

    def __init__(self, network: MemoryNetwork, address: str, own: NodeId) -> None:
        self.stage: StageService | None = None
        self._network = network
        self._address = address
        self._own = own
        self._ends: dict[NodeId, list[MemoryChannel]] = {peer: [] for peer in PEERS}
        self._stalled: set[NodeId] = set()
        self.places: dict[NodeId, str] = {}
        self.heard = 0

    async def accept(self, peer: NodeId, channel: Channel) -> None:
        """The Stage dialled; until it, or the script, ends it."""
        self._ends[peer].append(cast("MemoryChannel", channel))
        await settle(1e6)

    async def play(self, data: bytes) -> None:
        """Run a script."""
        for number, argument in steps(data):
            await self._do(Act(number % KINDS), PEERS[number // KINDS % 3], Fields(argument))
            if number < AT_ONCE:
                await settle()
                await self._read()
                self._check()

    def _check(self) -> None:
        assert self.stage is not None
        stage = self.stage
        runs = stage._runs.values()
        assert stage.kv_used == sum(run.kv_bytes for run in runs) <= stage.kv_budget
        assert all(mirror.run in runs for mirror in stage._audits._mirrors.values())
        for run in runs:
            state = run.state
            assert run.outlet.kept_rows <= state.budget
            assert state.ran <= state.received <= state.budget
            assert len(run.lane.steps) <= len(state.pending)
            assert all(0 <= known <= state.budget for known in state.known)

    async def _do(self, act: Act, peer: NodeId, fields: Fields) -> None:
        if act is Act.DIAL:
            self._dial(peer)
        elif act is Act.WAIT:
            await settle(fields.byte() / 10)
        elif act is Act.STALL:
            self._stalled ^= {peer}
        elif act is Act.BREAK:
            if self._ends[peer]:
                self._ends[peer].pop().break_off()
        else:
            byte, body = fields.byte(), b""
            session = SESSIONS[byte % 3]
            if act is Act.HIDDEN:
                message, body = self._hidden(session, fields)
            else:
                message = self._message(act, session, fields)
            if self._by_name(act, peer, session) != (byte >= 192):
                message = replace(message, **{_called(message): self._name(session)})
            await self._send(peer, encode(message, body))

    def _run(self, session: bytes) -> StageRun | None:
        assert self.stage is not None
        runs = (run for run in self.stage._runs.values() if run.state.id == session)
        return next(runs, None)

    def _name(self, session: bytes) -> bytes:
        """What Stages call it."""
        run = self._run(session)
        return common_name(PEERS[0], session) if run is None else run.state.name

    def _by_name(self, act: Act, peer: NodeId, session: bytes) -> bool:
        """Whether an honest node would say what Stages call it."""
        if act in (Act.TOKENS, Act.WATCH):
            run = self._run(session)
            return run is not None and run.client.remote != peer
        return act in (Act.HIDDEN, Act.RAN, Act.TAKE)

    def _dial(self, peer: NodeId) -> None:
        if len(self._ends[peer]) >= 4:
            return
        try:
            self._ends[peer].append(self._network.connect(peer, self._address, None))
        except Unreachable:
            return

    async def _send(self, peer: NodeId, frame: bytes) -> None:
        if not self._ends[peer]:
            self._dial(peer)
        end = self._ends[peer][-1]
        if len(end._other._inbox) >= _FULL:
            return
        try:
            await end.send(frame)
        except ChannelClosed:
            self._ends[peer].remove(end)

    async def _read(self) -> None:
        for peer, ends in self._ends.items():
            for end in ends:
                while end._inbox and peer not in self._stalled:
                    await end.receive()
                    self.heard += 1

    async def leave(self) -> None:
        """End all channels."""
        for ends in self._ends.values():
            for end in ends:
                end.break_off()

    # --- messages -----------------------------------------------------------------------

    def _known(self, session: bytes) -> tuple[int, int, int, int]:
        """Prompt, rows received, tokens drawn and epoch of a Session, as the Stage has them."""
        run = self._run(session)
        if run is None:
            return 5, 0, 0, 0
        state = run.state
        return state.prompt, state.received, state.draws.count, state.epoch

    def _route(self, fields: Fields) -> tuple[tuple[Hop, ...], int]:
        cuts = _CUTS[fields.byte() % len(_CUTS)]
        turn, index = fields.byte(), fields.byte() % len(cuts)
        hops, start = [], 0
        for place, end in enumerate(cuts):
            node = self._own if place == index else PEERS[(place + turn) % 3]
            hops.append(Hop(node, (self.places.get(node, "nowhere:1"),), Slice(start, end)))
            start = end
        return tuple(hops), index

    def _sampling(self, fields: Fields) -> DecodingParams:
        byte = fields.byte()
        sampling = SamplingParams(
            temperature=(0.0, 0.7)[byte & 1],
            repetition_penalty=(1.0, 1.3)[byte >> 1 & 1],
            min_p=(0.0, 1.0)[byte >> 2 & 1],
            logit_bias=((3, 1000.0), (2**24, -1000.0)) if byte & 8 else (),
        )
        stops = (0, 5, 15) if byte & 16 else ()
        asked = 20 if byte & 32 else None
        return DecodingParams(1 + fields.count(), sampling, stops, byte >> 6, asked)

    def _message(self, act: Act, session: bytes, fields: Fields) -> AnyMessage:
        _, received, drawn, epoch = self._known(session)
        if act is Act.OPEN:
            return self._opening(session, fields)
        if act is Act.REROUTE:
            next_epoch = fields.near(epoch + 1)
            drawn = fields.near(drawn)
            route, index = self._route(fields)
            return Reroute(session, min(next_epoch, 2**16), route, index, drawn)
        if act is Act.RESUME:
            position = fields.near(received)
            return Resume(session, min(fields.near(epoch), 2**16), position, fields.byte() % 32)
        if act is Act.TOKENS:
            position = fields.near(received)
            tokens = (fields.byte() % (VOCAB + 1),) * max(1, fields.count())
            marks = bytes(fields.byte() % 32)
            return ForwardTokens(session, position, tokens, min(fields.near(epoch), 2**16), marks)
        if act is Act.RAN:
            rows = max(1, fields.count())
            return RowsRun(session, rows, min(fields.near(epoch), 2**16))
        if act is Act.MIRROR:
            node, audit = PEERS[fields.byte() % 3], SESSIONS[fields.byte() % 3]
            return Mirror(session, audit, node, max(1, fields.near(received)))
        if act is Act.TELL:
            spots = (0, 3, 2**20 - 1)[: fields.byte() % 4]
            given = bool(fields.byte() & 1)
            return TellSpots(session, fields.count(), max(1, fields.count()), spots, given)
        if act is Act.CREDIT:
            return Credit(session, max(1, fields.count()))
        kind = {Act.CLOSE: CloseSession, Act.WATCH: WatchSession, Act.TAKE: TakeMirror}[act]
        return kind(session)

    def _opening(self, session: bytes, fields: Fields) -> OpenSession:
        route, index = self._route(fields)
        decoding = self._sampling(fields)
        prompt = max(1, fields.count())
        flags = fields.byte()
        drawn = fields.count() if flags & 1 else 0
        past = (1,) * drawn if flags & 2 else ()
        return OpenSession(
            session,
            "m",
            PRINT,
            route,
            index,
            min(prompt + decoding.max_tokens + drawn, CONTEXT + 1),
            prompt,
            decoding,
            max(1, fields.count()),
            epoch=fields.byte() % 4 if flags & 4 else 0,
            drawn=drawn,
            past=past,
            seen=(1,) if flags & 8 else (),
            timed=bool(flags & 16),
            spots=(0, 3) if flags & 32 else (),
            audit=bool(flags & 64),
        )

    def _hidden(self, session: bytes, fields: Fields) -> tuple[ForwardHidden, bytes]:
        _, received, _, epoch = self._known(session)
        position = fields.near(received)
        rows = max(1, fields.count())
        drafts = (fields.byte() % VOCAB,) * (fields.byte() % 8)
        number = (1.0, 2.0, 1e20, 0.0, float("nan"), float("inf"))[max(0, fields.byte() - 250)]
        marks = bytes(fields.byte() % 32)
        body = bytes(array("f", [number] * rows * WIDTH))
        message = ForwardHidden(
            session, position, rows, drafts, min(fields.near(epoch), 2**16), marks
        )
        return message, body
