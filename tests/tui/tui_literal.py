"""Literal views: small networks in every state, and an Attachment over them."""

from __future__ import annotations

import asyncio
import math
import re
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.domain.view import (
    Event,
    FeedUpdate,
    Finished,
    GenerateEvent,
    GenerateRequest,
    Healed,
    ModelView,
    NetworkView,
    NodeView,
    RouteChosen,
    RouteStep,
    StageTiming,
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

SHAPES = {
    LAYERS: ModelShape(
        layers=LAYERS,
        hidden=576,
        vocab=49_152,
        context=2048,
        layer_bytes=2 * MIB,
        embedding_bytes=30 * MIB,
        head_bytes=30 * MIB,
        kv_bytes=768,
        tied=True,
    )
}

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
        shape=SHAPES.get(layers),
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

IDLE = Telemetry(
    cpu_percent=4.0,
    cpu_count=8,
    memory_total=16 * 2**30,
    memory_available=9 * 2**30,
    process_rss=46 * MIB,
    uptime_s=725.0,
    stage="holds no slice",
)
"""The same machine, when its node holds no slice."""

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


def empty() -> NetworkView:
    """A network with a sentinel and this node, and no model."""
    me = NodeView(
        node=node_id(1),
        short=node_id(1)[:8],
        role="client",
        liveness="alive",
        last_seen_s=0.0,
        version="0.1.0",
        me=True,
    )
    return NetworkView(taken_at=NOW, me=me.node, nodes=(me, sentinel()), models=())


def alone() -> NetworkView:
    """Nobody but this node."""
    view = empty()
    return msgspec.structs.replace(view, nodes=view.nodes[:1])


def looked_at() -> NetworkView:
    """A network whose hosts are elsewhere; this node holds nothing."""
    others = view_of([host(n, (5 * (n - 2), 5 * (n - 2) + 10)) for n in range(2, 6)])
    return msgspec.structs.replace(others, me=node_id(1), nodes=(*others.nodes, empty().nodes[0]))


def many_models(count: int = 12) -> NetworkView:
    """As many models, of which every third has a gap."""
    nodes, models = [], []
    for number in range(count):
        name = {"model": f"made-up-{number}b", "fingerprint": f"{number:064x}"}
        parts = [(0, 15)] if number % 3 == 2 else [(0, 15), (15, 30)]
        hosts = [host(3 * number + i, part, **name) for i, part in enumerate(parts, 1)]
        nodes += hosts
        facts = {"id": name["model"], "fingerprint": name["fingerprint"]}
        models.append(msgspec.structs.replace(model_of(hosts), **facts))
    return NetworkView(taken_at=NOW, me=None, nodes=tuple(nodes), models=tuple(models))


async def _drawn() -> None:
    """Wait until the app took what it was given: it skips pictures when more than one wait."""
    from textual._context import active_app

    taken = asyncio.Event()
    active_app.get().screen_stack[0].call_later(taken.set)
    await taken.wait()


class LiteralAttachment:
    """Shows literal updates, then nothing more happens; answers every question the same way.

    `seconds` is how many pictures come, one a second apart by their own dates, in which the hosts'
    figures go up and down. With `heals` the second Stage is lost in the middle of every answer.
    """

    def __init__(
        self, view: NetworkView, answer: str = ANSWER, *, seconds: int = 1, heals: bool = False
    ) -> None:
        self.view = view
        self.answer = answer
        self._seconds = seconds
        self._heals = heals
        self._closed = asyncio.Event()

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        """The updates, at once."""
        for second in range(self._seconds):
            nodes = tuple(self._later(node, second) for node in self.view.nodes)
            view = msgspec.structs.replace(self.view, taken_at=NOW + second, nodes=nodes)
            holds = any(node.me and node.slice for node in self.view.nodes)
            telemetry = msgspec.structs.replace(
                TELEMETRY if holds else IDLE,
                cpu_percent=43.0 + 40 * math.sin(second / 9),
                bytes_in_per_s=42_000.0 * (1 + math.cos(second / 5)),
            )
            yield FeedUpdate(view=view, telemetry=telemetry, events=() if second else EVENTS)
            await _drawn()
        await self._closed.wait()

    def _later(self, node: NodeView, second: int) -> NodeView:
        if not second or not node.tokens_per_s:
            return node
        wave = 1 + math.sin(second / 7 + int(node.node[:4], 16))
        return msgspec.structs.replace(node, tokens_per_s=16.0 * wave, sessions=round(wave))

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """The answer, word by word."""
        route = route_over(self.view)
        yield RouteChosen(route, 31 + len(request.messages))
        words = re.findall(r"\S+\s*", self.answer)
        for number, word in enumerate(words):
            if self._heals and number == len(words) // 2:
                other = RouteStep(node_id(40), route[1].slice)
                yield Healed(
                    lost=route[1],
                    why="its process ended",
                    replaced_by=(other,),
                    seconds=0.4,
                    route=(route[0], other, *route[2:]),
                )
            slow = 60.0 if number % 37 == 5 else 0.0
            stages = tuple(
                StageTiming(0.4 + i * 0.2, 0.1 + slow * (i == 1), 9.0 + number % 5)
                for i in range(len(route))
            )
            yield TextDelta(word, (number,), stages=stages)
        yield Finished(
            finish_reason="stop",
            usage=Usage(31, len(words)),
            timings=Timings(0.21, 31.4, 4.0),
            route=route,
            events=("stage 2 was lost: its process ended; went on after 0.4 s",)
            if self._heals
            else (),
        )

    async def close(self) -> None:
        """Let go."""
        self._closed.set()
