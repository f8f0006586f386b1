"""The NetworkView: an immutable picture of the network for screens, scripts and tests.

Everything the terminal app draws and `status --json` prints comes from these structures; they
carry text (hexadecimal ids, words), so that whoever reads them needs no other module.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.domain.decoding import (
    MAX_LOGPROBS,
    FinishReason,
    SamplingParams,
    TokenLogprobs,
)
from diffuse_core.domain.machine import (
    MAX_CHIPS,
    MAX_GPUS,
    GpuFigures,
    HostProgress,
    Temperature,
)
from diffuse_core.domain.roles import HoldState, Role
from diffuse_core.domain.shapes import Contract, ModelShape
from diffuse_core.domain.slices import LayerIndex, Slice
from diffuse_core.domain.tools import MAX_TOOL_CALLS, MAX_TOOLS, CallId, Tool, ToolCall

CoverageState = Literal["Robust", "Fragile", "Incomplete"]
Liveness = Literal["alive", "suspect", "dead"]
EventLevel = Literal["info", "good", "warning", "error"]


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node as the viewing node sees it. Times in seconds; `rtt_s` None when unmeasured.

    `distance_s` is the round trip that coordinates tell, None where one of the two has none.

    `relays` are the node ids of the Sentinels through which it is met; none when it is dialled.
    `quarantine` is how it stands with whoever looks, because of audits.
    """

    node: str
    short: str
    role: Role
    liveness: Liveness
    last_seen_s: float
    version: str
    me: bool = False
    addresses: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    rtt_s: float | None = None
    distance_s: float | None = None
    model: str | None = None
    fingerprint: str | None = None
    contract: Contract | None = None
    slice: Slice | None = None
    state: HoldState | None = None
    capacity: int = 0
    sessions: int = 0
    kv_used: int = 0
    kv_budget: int = 0
    tokens_per_s: float = 0.0
    quarantine: Literal["quarantined", "doubtful"] | None = None


class Coming(msgspec.Struct, frozen=True):
    """So many live Hosts claim or load this slice: it is not held yet."""

    slice: Slice
    state: HoldState
    hosts: int


class Remedy(msgspec.Struct, frozen=True):
    """What one more Host could do: by holding `slice`, for `bytes`, bring the model to `state`."""

    slice: Slice
    bytes: int
    state: CoverageState
    min_replicas: int


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage of one model.

    `replicas` counts ready live Hosts per layer; `missing` are the ranges no such Host holds;
    `weakest` is the first of the ranges with the fewest holders, None when every layer has the
    target number. `coming` is what live Hosts claim or load; `remedy` reckons with that as held,
    and is None when nothing would be lacking then. `shape` are the model's sizes, with which a
    forecast can be made; None from a node that does not tell them.
    """

    id: str
    fingerprint: str
    contract: Contract
    layers: int
    context: int
    state: CoverageState
    servable: bool
    missing: tuple[Slice, ...]
    replicas: tuple[int, ...]
    min_replicas: int
    target_replicas: int
    hosts: int
    weakest: Slice | None = None
    coming: tuple[Coming, ...] = ()
    remedy: Remedy | None = None
    shape: ModelShape | None = None


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """All of the network that one node knows. `taken_at` is Unix time in seconds."""

    taken_at: float
    me: str | None
    nodes: tuple[NodeView, ...]
    models: tuple[ModelView, ...]


class RelayFigures(msgspec.Struct, frozen=True):
    """How busy a Sentinel's relay is; bytes since it started, both ways."""

    reservations: int
    circuits: int
    bytes_relayed: int


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What the node's owner sees of the machine and the process.

    Percent 0..100, sizes in bytes, rates per second. `stage` tells in words what the host is
    doing ("loading 40 %", "ready"). `loop_lag` is how late the event loop gets to what is due, in
    seconds: over the last minute, and `ever` since the start. `bytes_in` and `bytes_out` are of
    all frames since then; `tasks` those of the event loop, `open_files` file descriptors. `relay`
    is a Sentinel's. `reason` tells why the slice was taken; `disk_free` is where models are kept.
    """

    cpu_percent: float
    cpu_count: int
    memory_total: int
    memory_available: int
    process_rss: int
    uptime_s: float
    device: str = "cpu"
    model: str | None = None
    slice: Slice | None = None
    stage: str = ""
    weight_bytes: int = 0
    kv_used: int = 0
    kv_budget: int = 0
    sessions: int = 0
    tokens_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    loop_lag_p50_s: float = 0.0
    loop_lag_p99_s: float = 0.0
    loop_lag_max_s: float = 0.0
    loop_lag_ever_p99_s: float = 0.0
    loop_lag_ever_max_s: float = 0.0
    tasks: int = 0
    open_files: int = 0
    relay: RelayFigures | None = None
    gpus: Annotated[tuple[GpuFigures, ...], msgspec.Meta(max_length=MAX_GPUS)] = ()
    temperatures: Annotated[tuple[Temperature, ...], msgspec.Meta(max_length=MAX_CHIPS)] = ()
    progress: HostProgress | None = None
    reason: Annotated[str, msgspec.Meta(max_length=256)] = ""
    disk_free: int | None = None


class Event(msgspec.Struct, frozen=True):
    """Something that happened on the network. `at` is Unix time in seconds. Never a prompt."""

    at: float
    level: EventLevel
    text: Annotated[str, msgspec.Meta(max_length=512)]


class FeedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One tick of the owner's feed: the whole view, telemetry, and events since the last tick."""

    view: NetworkView
    telemetry: Telemetry | None
    events: tuple[Event, ...] = ()


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of a conversation.

    An assistant's may have `tool_calls`. What came of one of them is a message of the role
    "tool", with the call's id as `tool_call_id` and maybe the tool's `name`. The `name` of
    another is that of who speaks; few templates tell the model. `reasoning` is what an assistant
    thought before it said `content`, where that is known apart; most templates tell only of what
    it thought since the last question.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[str, msgspec.Meta(max_length=1_000_000)]
    tool_calls: Annotated[tuple[ToolCall, ...], msgspec.Meta(max_length=MAX_TOOL_CALLS)] = ()
    tool_call_id: CallId = ""
    name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    reasoning: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for a generation. Exactly one of `messages` (through the chat template) and `raw`.

    `speculate` lets the first Stage guess tokens ahead, which never changes the text. `timings`
    asks where each token spent its time. `grace_s` is how many seconds a lost Stage is waited
    for when there is no replica. `logprobs` and `min_tokens` are as in DecodingParams.
    With the chance `audit`, 0 to 1, each Stage is computed again by a replica, and compared.
    So many `private` first layers run where it is asked for, and `private_tail` last ones.
    The chat template tells the model of the `tools`; its calls come as text (domain.tool_calls).
    """

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    messages: Annotated[tuple[ChatMessage, ...], msgspec.Meta(max_length=1024)] = ()
    raw: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 512
    sampling: SamplingParams = SamplingParams()
    stop: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...],
        msgspec.Meta(max_length=16),
    ] = ()
    ignore_eos: bool = False
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**20)] = 0
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    speculate: bool = True
    timings: bool = False
    grace_s: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 20.0
    audit: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    private: LayerIndex = 0
    private_tail: LayerIndex = 0
    tools: Annotated[tuple[Tool, ...], msgspec.Meta(max_length=MAX_TOOLS)] = ()


class RouteStep(msgspec.Struct, frozen=True):
    """One Stage of the Route a generation took. `via` is "local", "direct" or "relay"."""

    node: str
    slice: Slice
    via: Literal["local", "direct", "relay"] = "direct"


class Usage(msgspec.Struct, frozen=True):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int


class Timings(msgspec.Struct, frozen=True):
    """Seconds to the first token, decode rate after it, and the whole."""

    ttft_s: float
    tokens_per_s: float
    total_s: float


class StageTiming(msgspec.Struct, frozen=True):
    """Where a token spent its time on one Stage, in milliseconds.

    `wire` is the way to this Stage, `queue` the wait there for its pass.
    """

    wire_ms: float
    queue_ms: float
    compute_ms: float


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More text of the answer; whole characters only.

    `logprobs` are those of `token_ids`, where asked for. `place` is that of the token among those
    that one pass gave, 0 for the first; with that one come the pass's times, `stages`, one for
    each Stage of the Route. So many characters are `held` back after it, as they may begin a stop
    string.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    stages: tuple[StageTiming, ...] = ()
    place: Annotated[int, msgspec.Meta(ge=0, le=2**20)] = 0
    held: Annotated[int, msgspec.Meta(ge=0, le=2**20)] = 0


class Waiting(msgspec.Struct, frozen=True, tag="waiting", kw_only=True):
    """A Stage was lost and nobody can take its place yet: that is waited for, so many seconds."""

    lost: RouteStep
    why: str
    seconds: float


class Healed(msgspec.Struct, frozen=True, tag="healed", kw_only=True):
    """A Stage was lost and the answer went on: on which nodes, and how many seconds later.

    `route` is the whole Route from now on.
    """

    lost: RouteStep
    why: str
    replaced_by: tuple[RouteStep, ...]
    seconds: float
    route: tuple[RouteStep, ...]


class RouteChosen(msgspec.Struct, frozen=True, tag="route"):
    """The Route was opened; tokens follow."""

    route: tuple[RouteStep, ...]
    prompt_tokens: int


class Finished(msgspec.Struct, frozen=True, tag="finished", kw_only=True):
    """The generation ended well (also when cancelled): text, reason and figures are complete.

    `audits` is how many Audited follow; with 0 this is the last event.
    """

    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    route: tuple[RouteStep, ...]
    events: tuple[str, ...] = ()
    audits: int = 0


AuditVerdict = Literal["agrees", "differs", "unaudited"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How what a Stage gave compares with what an auditor computed from the same rows.

    `difference` is how far their rows are apart, relative to the rows' size, and `nats` how far
    out of reach a token was at most that a last Stage drew. None: there was nothing to compare,
    or what was told is no number.
    """

    auditor: str
    agrees: bool
    difference: float | None = None
    nats: float | None = None


class Audited(msgspec.Struct, frozen=True, tag="audited", kw_only=True):
    """What came of the audit of one Stage: whether what it gave stands.

    Its first `rows` rows were computed again by the `auditors`: a second one where the first did
    not agree. `decided_by` is the auditor who made it two against one. `quarantined` and
    `doubtful` are the nodes that are so now because of this. `reason` tells in a few words what
    is at fault, or why nothing came of it. Differences of `tolerance` and less are rounding.
    """

    node: str
    slice: Slice
    verdict: AuditVerdict
    reason: str = ""
    rows: int = 0
    auditors: tuple[Comparison, ...] = ()
    tolerance: float = 0.0
    nats_tolerance: float = 0.0
    decided_by: str | None = None
    quarantined: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()

    @property
    def accuses(self) -> bool:
        """Whether a node is at fault, or may be."""
        return bool(self.quarantined or self.doubtful)


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The generation failed: what happened, what to do, and the exit code a command would have."""

    message: str
    exit_code: int


GenerateEvent = RouteChosen | TextDelta | Waiting | Healed | Finished | Audited | Failed
