"""Literal views for demonstration: small networks in every state, and an Attachment over them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.domain.view import (
    Event,
    FeedUpdate,
    Finished,
    GenerateEvent,
    GenerateRequest,
    ModelView,
    NetworkView,
    NodeView,
    RouteChosen,
    RouteStep,
    Telemetry,
    TextDelta,
    Timings,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MODEL = "SmolLM2-135M-Instruct"
FINGERPRINT = "5f" * 32
LAYERS = 30
MIB = 2**20
NOW = 1_767_268_800.0

ANSWER = """The capital of France is **Paris**.

It lies on the Seine, and has been the capital since the year 987. Three things to see:

1. the *Louvre*, the largest museum of the world
2. the Sainte-Chapelle
3. the Canal Saint-Martin

```python
def capital(country: str) -> str:
    return {"France": "Paris"}[country]
```

| river | length |
|-------|--------|
| Seine | 777 km |
"""


def node_id(number: int) -> str:
    """A made-up node id."""
    return f"{number * 2654435761 % 2**32:08x}" + f"{number:056x}"


def host(number: int, part: tuple[int, int], state: str = "ready", **more: object) -> NodeView:
    """A host of the demo model."""
    facts = {
        "node": node_id(number),
        "short": node_id(number)[:8],
        "role": "host",
        "liveness": "alive",
        "last_seen_s": 0.4 + number % 5,
        "version": "0.1.0",
        "addresses": (f"127.0.0.1:{9440 + number}",),
        "rtt_s": 0.0003 * (1 + number % 7),
        "model": MODEL,
        "fingerprint": FINGERPRINT,
        "contract": "int4",
        "slice": Slice(*part),
        "state": state,
        "capacity": 150 * MIB,
        "sessions": number % 3,
        "kv_used": (7 * number % 40) * MIB,
        "kv_budget": 40 * MIB,
        "tokens_per_s": 31.4 if number % 3 else 0.0,
    }
    return NodeView(**{**facts, **more})


def sentinel() -> NodeView:
    """The sentinel of the demo network."""
    return NodeView(
        node=node_id(77),
        short=node_id(77)[:8],
        role="sentinel",
        liveness="alive",
        last_seen_s=0.2,
        version="0.1.0",
        rtt_s=0.0002,
    )


def model_of(nodes: Sequence[NodeView], layers: int = LAYERS, target: int = 2) -> ModelView:
    """Coverage as the node would reckon it."""
    ready = [n.slice for n in nodes if n.slice and n.state == "ready" and n.liveness != "dead"]
    counts = replicas_per_layer(layers, ready)
    missing = gaps(layers, ready)
    lowest = min(counts)
    state = "Incomplete" if missing else "Robust" if lowest >= target else "Fragile"
    return ModelView(
        id=MODEL,
        fingerprint=FINGERPRINT,
        contract="int4",
        layers=layers,
        context=2048,
        state=state,
        servable=not missing,
        missing=missing,
        replicas=counts,
        min_replicas=lowest,
        target_replicas=target,
        hosts=len(ready),
    )


def view_of(nodes: Sequence[NodeView], layers: int = LAYERS) -> NetworkView:
    """A network of these hosts and a sentinel."""
    mine = next((n.node for n in nodes if n.me), None)
    return NetworkView(
        taken_at=NOW, me=mine, nodes=(*nodes, sentinel()), models=(model_of(nodes, layers),)
    )


def fragile() -> NetworkView:
    """Covered, the middle held once."""
    return view_of(
        [
            host(1, (0, 12), me=True),
            host(2, (0, 12)),
            host(3, (10, 20)),
            host(4, (18, 30)),
            host(5, (20, 30)),
            host(6, (12, 20), "loading"),
        ]
    )


def robust() -> NetworkView:
    """Everything held twice."""
    return view_of(
        [
            host(1, (0, 10), me=True),
            host(2, (10, 20)),
            host(3, (20, 30)),
            host(4, (0, 15)),
            host(5, (15, 30)),
            host(6, (5, 15)),
        ]
    )


def incomplete() -> NetworkView:
    """A host died: a gap that another begins to fill."""
    return view_of(
        [
            host(1, (0, 10), me=True),
            host(2, (10, 20), liveness="dead", last_seen_s=14.0),
            host(3, (20, 30)),
            host(4, (12, 20), "loading"),
            host(5, (20, 30), liveness="suspect", last_seen_s=3.0),
        ]
    )


def large(holders: int = 400, layers: int = 126) -> NetworkView:
    """More holders than lines and more layers than columns."""
    width = layers // 6
    nodes = [
        host(n, (start, min(layers, start + width)), me=n == 1)
        for n in range(1, holders + 1)
        for start in [(n * 7) % (layers - width + 1)]
    ]
    return view_of(nodes, layers)


TELEMETRY = Telemetry(
    cpu_percent=43.0,
    cpu_count=8,
    memory_total=16 * 2**30,
    memory_available=9 * 2**30,
    process_rss=412 * MIB,
    uptime_s=3725.0,
    model=MODEL,
    slice=Slice(0, 12),
    stage="ready",
    weight_bytes=58 * MIB,
    kv_used=14 * MIB,
    kv_budget=40 * MIB,
    sessions=1,
    tokens_per_s=31.4,
    bytes_in_per_s=42_000.0,
    bytes_out_per_s=38_500.0,
)

EVENTS = (
    Event(NOW - 62, "info", "joined the network through 127.0.0.1:9440"),
    Event(NOW - 61, "info", "claiming layers 0:12 of SmolLM2-135M-Instruct: nobody holds them"),
    Event(NOW - 55, "good", "layers 0:12 are ready (58 MiB in 5.2 s)"),
    Event(NOW - 31, "warning", "node 3c6ef372 does not answer; asking others about it"),
    Event(NOW - 27, "error", "node 3c6ef372 is gone: layers 12:18 have one holder left"),
)


def route_over(view: NetworkView) -> tuple[RouteStep, ...]:
    """The Route that takes the fewest hosts."""
    steps: list[RouteStep] = []
    at, ready = 0, [n for n in view.nodes if n.slice and n.state == "ready"]
    while at < view.models[0].layers:
        following = [n for n in ready if n.slice.start <= at < n.slice.end]
        best = max(following, key=lambda n: (n.slice.end, n.me), default=None)
        if best is None:
            break
        steps.append(RouteStep(best.node, Slice(at, best.slice.end)))
        at = best.slice.end
    return tuple(steps)


class LiteralAttachment:
    """Shows literal updates, then nothing more happens; answers every question the same way."""

    def __init__(self, view: NetworkView, answer: str = ANSWER) -> None:
        self.view = view
        self.answer = answer
        self._closed = asyncio.Event()

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        """One update."""
        yield FeedUpdate(view=self.view, telemetry=TELEMETRY, events=EVENTS)
        await self._closed.wait()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """The answer, in one go."""
        route = route_over(self.view)
        yield RouteChosen(route, 31 + len(request.messages))
        yield TextDelta(self.answer)
        yield Finished(
            finish_reason="stop",
            usage=Usage(31, 118),
            timings=Timings(0.21, 31.4, 4.0),
            route=route,
        )

    async def close(self) -> None:
        """Let go."""
        self._closed.set()
