"""Prometheus metrics: a node's figures in the text formats that Prometheus reads.

Names follow Prometheus's own advice (https://prometheus.io/docs/practices/naming): base units,
`_total` for counters. Labels take values from short lists only, and node ids only of the few
neighbours in Routes, so that however many nodes there are, a scrape stays as small as it is.
There is no global registry: what is collected belongs to one node.
"""

from __future__ import annotations

import asyncio
import json
from math import inf
from typing import TYPE_CHECKING, Any, get_args

from diffuse_core.domain.audit_messages import AuditMessage
from diffuse_core.domain.decoding import FinishReason
from diffuse_core.domain.directory import Admission
from diffuse_core.domain.messages import BundleMessage, GossipMessage, SessionMessage
from diffuse_core.domain.owner_messages import OwnerMessage
from diffuse_core.domain.relay_messages import RelayMessage
from diffuse_core.domain.view import AuditVerdict, CoverageState
from diffuse_core.errors import RefusalReason
from diffuse_core.services.vitals import HostState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from diffuse_core.domain.machine import GpuFigures
    from diffuse_core.services.loop_lag import Lags
    from diffuse_core.services.tally import AnswerTally, Spread, StageTally
    from diffuse_core.services.vitals import Health, HostFigures, NodeFigures, RelayCounts

PREFIX = "diffuse_"
EXIT_CODES = (1, 2, 3, 4, 5, 6, 7)
"""Of answers that failed, as the command line has them."""
_GROUPS = {
    "gossip": GossipMessage,
    "session": SessionMessage,
    "audit": AuditMessage,
    "bundle": BundleMessage,
    "relay": RelayMessage,
    "owner": OwnerMessage,
}
_GROUP = {kind: name for name, union in _GROUPS.items() for kind in get_args(union)}
_REASONS = get_args(RefusalReason)
_ADMISSIONS = tuple(one for one in get_args(Admission) if one not in ("new", "newer", "known"))
COVERAGES = get_args(CoverageState)
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
KEPT_S = 0.2
"""Figures are taken so often at most, whoever asks: they keep the event loop for milliseconds."""
UNKNOWN = "unknown"
"""The group of messages that this version does not know, from newer ones."""


def _gauge(name: str, text: str, value: float, **labels: str) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    return _labelled(GaugeMetricFamily, name, text, [(labels, value)])


def _gauges(name: str, text: str, label: str, values: Mapping[Any, float]) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    rows = [({label: str(key)}, value) for key, value in values.items()]
    return _labelled(GaugeMetricFamily, name, text, rows)


def _counter(name: str, text: str, value: float) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    return _labelled(CounterMetricFamily, name, text, [({}, value)])


def _counters(name: str, text: str, label: str, values: Mapping[Any, float]) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    rows = [({label: str(key)}, value) for key, value in values.items()]
    return _labelled(CounterMetricFamily, name, text, rows)


def _labelled(
    family: Any, name: str, text: str, rows: Iterable[tuple[Mapping[str, str], float]]
) -> Metric:
    rows = list(rows)
    metric: Metric = family(PREFIX + name, text, labels=tuple(rows[0][0]) if rows else ())
    for labels, value in rows:
        metric.add_metric(tuple(labels.values()), value)  # type: ignore[attr-defined]
    return metric


def _spreads(name: str, text: str, label: str, spreads: Mapping[str, Spread]) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    metric = HistogramMetricFamily(PREFIX + name, text, labels=(label,) if label else ())
    for key, spread in spreads.items():
        so_far, buckets = 0, []
        for bound, count in zip((*spread.bounds, inf), spread.counts, strict=True):
            so_far += count
            buckets.append(("+Inf" if bound == inf else str(bound), so_far))
        metric.add_metric((key,) if label else (), buckets, spread.sum)
    return metric


def families(figures: NodeFigures) -> Iterator[Metric]:
    """Every metric of a node."""
    yield _gauge(
        "build_info",
        "What runs here; always 1.",
        1,
        version=figures.version,
        role=figures.role,
        node=figures.node,
    )
    yield _gauge("uptime_seconds", "Since the node began.", figures.uptime_s)
    yield from _of_loop(figures.lags, figures.tasks)
    yield from _of_network(figures)
    yield from of_answers(figures.answers)
    if figures.host is not None:
        yield from _of_host(figures.host)
        yield from _of_work(figures.host.tally)
    if figures.relay is not None:
        yield from _of_relay(figures.relay)
    yield from _of_machine(figures)


def of_server(
    version: str, uptime_s: float, lags: Lags, tasks: int, answers: AnswerTally
) -> Iterator[Metric]:
    """Every metric of a server for other programs, which is no node."""
    yield _gauge(
        "build_info", "What runs here; always 1.", 1, version=version, role="serve", node=""
    )
    yield _gauge("uptime_seconds", "Since the server began.", uptime_s)
    yield from _of_loop(lags, tasks)
    yield from of_answers(answers)


def _of_loop(lags: Lags, tasks: int) -> Iterator[Metric]:
    # Not `quantile`, which is kept for summaries.
    recent = {"50": lags.p50_s, "99": lags.p99_s, "100": lags.max_s}
    text = "How late the event loop is, last minute."
    yield _gauges("loop_lag_seconds", text, "percentile", recent)
    yield _gauge("loop_lag_ever_max_seconds", "The longest lag since the start.", lags.ever_max_s)
    yield _gauge("tasks", "Tasks of the event loop.", tasks)


def _of_network(figures: NodeFigures) -> Iterator[Metric]:
    alive = {"alive": 0, "suspect": 0, "dead": 0, **figures.members}
    yield _gauges("members", "Nodes known, this one too, by liveness.", "liveness", alive)
    models = {state: figures.models.get(state, 0) for state in COVERAGES}
    yield _gauges("models", "Models of the network by their coverage.", "coverage", models)
    direct = figures.links - figures.links_relayed
    links = {"direct": direct, "relayed": figures.links_relayed}
    yield _gauges("links", "Open links to other nodes.", "way", links)
    traffic = figures.traffic
    for way, kinds in (("received", traffic.received), ("sent", traffic.sent)):
        frames, size = _grouped(kinds)
        yield _counters(f"messages_{way}", f"Messages {way}, by their purpose.", "group", frames)
        yield _counters(f"bytes_{way}", f"Bytes of frames {way}, by purpose.", "group", size)
    gossip = figures.gossip
    yield _counter("probes_failed", "Probes that nobody answered in time.", gossip.probes_failed)
    turns = {state: gossip.turns.get(state, 0) for state in ("alive", "suspect", "dead")}
    yield _counters(
        "liveness_changes", "Nodes found to be so, that had not been.", "liveness", turns
    )
    refused = {reason: gossip.refusals.get(reason, 0) for reason in _ADMISSIONS}
    yield _counters("records_refused", "Records of nodes that were refused.", "reason", refused)
    yield _gauge("health", "0 when well; higher when this node itself seems slow.", gossip.health)


def _grouped(kinds: Mapping[type, list[int]]) -> tuple[dict[str, float], dict[str, float]]:
    frames: dict[str, float] = dict.fromkeys((*_GROUPS, UNKNOWN), 0)
    size = dict(frames)
    for kind, (count, amount) in kinds.items():
        group = _GROUP.get(kind, UNKNOWN)
        frames[group] += count
        size[group] += amount
    return frames, size


def of_answers(tally: AnswerTally) -> Iterator[Metric]:
    """The metrics of answers that were asked for here: of a node's owner, or through an API."""
    yield _counter("answers_started", "Answers that got a route.", tally.started)
    finished = {reason: tally.finished.get(reason, 0) for reason in get_args(FinishReason)}
    text = "Answers that ended well, or that whoever asked wanted no more of."
    yield _counters("answers_finished", text, "reason", finished)
    failed = {code: tally.failed.get(code, 0) for code in EXIT_CODES}
    yield _counters("answers_failed", "Answers that failed.", "exit_code", failed)
    yield _counter("answers_healed", "Stages lost amid answers that went on.", tally.healed)
    yield _counter("answer_prompt_tokens", "Tokens of prompts.", tally.prompt_tokens)
    yield _counter("answer_tokens", "Tokens of finished answers.", tally.tokens)
    audits = {verdict: tally.audits.get(verdict, 0) for verdict in get_args(AuditVerdict)}
    yield _counters("audits", "Stages that were audited.", "verdict", audits)
    text = "To the first token of finished answers."
    yield _spreads("first_token_seconds", text, "", {"": tally.first_token})


def _of_host(host: HostFigures) -> Iterator[Metric]:
    states = {state: float(state == host.state) for state in get_args(HostState)}
    yield _gauges("host_state", "1 for what the host is doing.", "state", states)
    if host.model is not None:
        yield _gauge(
            "model_info",
            "The model that is held; always 1.",
            1,
            model=host.model.id,
            fingerprint=host.model.fingerprint,
            contract=host.model.contract,
            device=host.device,
        )
        yield _gauge("model_layers", "Layers of the model.", host.model.shape.layers)
    if host.slice is not None:
        yield _gauge("slice_start", "First layer of the slice.", host.slice.start)
        yield _gauge("slice_end", "The layer after its last one.", host.slice.end)
        yield _gauge("slice_layers", "Layers held.", len(host.slice))
    if host.coverage is not None:
        now = host.coverage.state
        states = {state: float(state == now) for state in COVERAGES}
        yield _gauges("coverage_state", "1 for the model's coverage.", "coverage", states)
        text = "Hosts of the layer of the model that has fewest."
        yield _gauge("replicas_min", text, host.coverage.min_replicas)
        missing = sum(map(len, host.coverage.missing))
        yield _gauge("layers_missing", "Layers of the model held by no live host.", missing)
    yield _gauge("weight_bytes", "Weights held.", host.weight_bytes)
    yield _gauge("kv_used_bytes", "KV cache that sessions have.", host.kv_used)
    yield _gauge("kv_budget_bytes", "KV cache that sessions may have.", host.kv_budget)
    yield _gauge("sessions", "Sessions held.", host.sessions)
    yield _gauge("sessions_waiting", "Sessions with a step that waits to run.", host.waiting)
    yield _gauge("step_seconds", "Median compute of a token's pass, last seconds.", host.step_s)
    yield _gauge("step_wait_recent_seconds", "Mean wait for it, last seconds.", host.wait_s)
    text = "Round trip to the neighbours in routes."
    yield _gauges("neighbour_round_trip_seconds", text, "neighbour", host.round_trips)


def _of_work(tally: StageTally) -> Iterator[Metric]:
    rows = {"prompt": tally.prompt_rows, "answer": tally.decode_rows}
    yield _counters("rows", "Positions computed, guesses and repeats too.", "of", rows)
    yield _counter("tokens_drawn", "Tokens drawn, where the slice is the last.", tally.drawn)
    passes = {"short": tally.short, "long": tally.long}
    text = "Compute of passes: short ones of tokens, long ones of pieces of prompts."
    yield _spreads("pass_seconds", text, "length", passes)
    yield _spreads("step_wait_seconds", "What steps waited for it.", "", {"": tally.waits})
    yield _counter("sessions_opened", "Sessions that were admitted.", tally.opened)
    yield _counter("sessions_closed", "Sessions that ended, well or not.", tally.closed)
    failed = {**dict.fromkeys(_REASONS, 0), **tally.failed}
    yield _counters("sessions_failed", "Sessions that were given up here.", "reason", failed)
    refused = {**dict.fromkeys(_REASONS, 0), **tally.refused}
    yield _counters("sessions_refused", "Sessions that were not admitted.", "reason", refused)


def _of_relay(relay: RelayCounts) -> Iterator[Metric]:
    yield _gauge("relay_reservations", "Nodes that are reached here.", relay.now.reservations)
    yield _gauge("relay_circuits", "Circuits that are carried.", relay.now.circuits)
    yield _counter("relay_bytes", "Bytes relayed.", relay.now.bytes_relayed)
    yield _counter("relay_reserved", "Reservations granted or prolonged.", relay.reserved)
    yield _counter("relay_carried", "Circuits that came about.", relay.carried)
    refused = {**dict.fromkeys(("unknown", "busy", "limit", "gone"), 0), **relay.refused}
    yield _counters("relay_refused", "What was refused.", "reason", refused)


def _of_machine(figures: NodeFigures) -> Iterator[Metric]:
    if figures.sensed.disk_free is not None:
        yield _gauge("disk_free_bytes", "Where models are kept.", figures.sensed.disk_free)
    gpus = {str(index): gpu for index, gpu in enumerate(figures.sensed.gpus)}
    if not gpus:
        return
    for name, text, value in _OF_GPUS:
        told = {key: found for key, gpu in gpus.items() if (found := value(gpu)) is not None}
        yield _gauges(name, text, "gpu", told)


_OF_GPUS: tuple[tuple[str, str, Callable[[GpuFigures], float | None]], ...] = (
    ("gpu_memory_total_bytes", "Memory of the GPU.", lambda gpu: gpu.memory_total),
    ("gpu_memory_used_bytes", "Memory in use, by anybody.", lambda gpu: gpu.memory_used),
    (
        "gpu_busy_ratio",
        "Share of time that it computes.",
        lambda gpu: None if gpu.busy_percent is None else gpu.busy_percent / 100,
    ),
    ("gpu_celsius", "Temperature of the GPU.", lambda gpu: gpu.celsius),
)


class NodeCollector:
    """Collects metrics of one node; what a collector is, see prometheus_client.

    Beside those of `figures` they are those of the process, by prometheus_client itself.
    """

    def __init__(self, source: Callable[[], Iterable[Metric]]) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._source = source
        self._process = ProcessCollector(registry=CollectorRegistry())

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._source()
        yield from self._process.collect()


def metrics_app(source: Callable[[], Iterable[Metric]], health: Callable[[], Health]) -> Any:
    """The ASGI application of a node's operators: `/metrics`, `/healthz`, `/readyz`.

    `/healthz` tells with 200 that the node lives, `/readyz` that it also does what it is for: a
    Host has loaded its Slice and takes Sessions. Else 503 says why not.
    """
    from prometheus_client.exposition import generate_latest
    from prometheus_client.openmetrics import exposition as open_metrics
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    collector = NodeCollector(source)
    kept: dict[str, tuple[float, bytes]] = {}

    async def metrics(request: Any) -> Response:
        now = asyncio.get_running_loop().time()
        # Not what prometheus_client chooses: that takes the version from the header as it is.
        encode: Callable[[Any], bytes] = generate_latest
        content_type = PLAIN
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            encode, content_type = open_metrics.generate_latest, open_metrics.CONTENT_TYPE_LATEST
        at, body = kept.get(content_type, (-inf, b""))
        if now - at >= KEPT_S:
            body = encode(collector)
            kept[content_type] = now, body
        return Response(body, headers={"content-type": content_type})

    def answer(health: Health, *, good: bool) -> Response:
        told = {"status": "ok" if good else "failing", "alive": health.alive}
        told |= {"ready": health.ready, "reason": health.reason}
        body = json.dumps(told)
        return Response(body, 200 if good else 503, media_type="application/json")

    async def healthz(_request: Any) -> Response:
        found = health()
        return answer(found, good=found.alive)

    async def readyz(_request: Any) -> Response:
        found = health()
        return answer(found, good=found.ready)

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )
