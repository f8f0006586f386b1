"""An Attachment that a test drives by hand, and literal views."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.domain.view import (
    FeedUpdate,
    Finished,
    ModelView,
    NetworkView,
    NodeView,
    RouteStep,
    Telemetry,
    Timings,
    Usage,
)
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from diffuse_core.domain.view import Event, GenerateEvent, GenerateRequest

MODEL = "tiny-llama"
PRINT = "ab" * 32


def node(number: int, part: tuple[int, int] | None = None, **more: Any) -> NodeView:
    facts = {
        "node": f"{number:08x}" + "0" * 56,
        "short": f"{number:08x}",
        "role": "host",
        "liveness": "alive",
        "last_seen_s": 1.0,
        "version": "0.1.0",
    }
    if part is not None:
        facts |= {
            "model": MODEL,
            "fingerprint": PRINT,
            "contract": "fp32",
            "slice": Slice(*part),
            "state": "ready",
        }
    return NodeView(**(facts | more))


def model(nodes: Sequence[NodeView], layers: int = 30, **more: Any) -> ModelView:
    ready = [n.slice for n in nodes if n.slice and n.state == "ready" and n.liveness != "dead"]
    counts = replicas_per_layer(layers, ready)
    missing = gaps(layers, ready)
    target = more.get("target_replicas", 2)
    state = "Incomplete" if missing else "Robust" if min(counts) >= target else "Fragile"
    facts = {
        "id": MODEL,
        "fingerprint": PRINT,
        "contract": "fp32",
        "layers": layers,
        "context": 2048,
        "state": state,
        "servable": not missing,
        "missing": missing,
        "replicas": counts,
        "min_replicas": min(counts),
        "target_replicas": target,
        "hosts": len(ready),
    }
    return ModelView(**(facts | more))


def network(*nodes: NodeView, layers: int = 30) -> NetworkView:
    models = (model(nodes, layers),) if any(n.slice for n in nodes) else ()
    me = next((n.node for n in nodes if n.me), None)
    return NetworkView(taken_at=0.0, me=me, nodes=tuple(nodes), models=models)


def served() -> NetworkView:
    """A model that answers: two hosts, each layer held once."""
    return network(node(1, (0, 15), me=True), node(2, (15, 30)))


TELEMETRY = Telemetry(
    cpu_percent=10.0,
    cpu_count=2,
    memory_total=8 * 2**30,
    memory_available=4 * 2**30,
    process_rss=2**28,
    uptime_s=75.0,
)


def finished(reason: str = "stop", events: tuple[str, ...] = ()) -> Finished:
    return Finished(
        finish_reason=reason,
        usage=Usage(7, 3),
        timings=Timings(0.25, 12.5, 1.0),
        route=(RouteStep("01" * 32, Slice(0, 15)), RouteStep("02" * 32, Slice(15, 30))),
        events=events,
    )


class Generation:
    """One generation: the test puts events in, and sees whether it was closed."""

    def __init__(self, request: GenerateRequest) -> None:
        self.request = request
        self.events: asyncio.Queue[GenerateEvent | DiffuseError | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def stream(self) -> AsyncIterator[GenerateEvent]:
        try:
            while (event := await self.events.get()) is not None:
                if isinstance(event, DiffuseError):
                    raise event
                yield event
        finally:
            self.closed.set()


class FakeAttachment:
    """Updates come from a queue; an error in it ends the feed."""

    def __init__(self) -> None:
        self.feed: asyncio.Queue[FeedUpdate | DiffuseError] = asyncio.Queue()
        self.generations: list[Generation] = []
        self.closed = False

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        while True:
            update = await self.feed.get()
            if isinstance(update, DiffuseError):
                raise update
            yield update

    def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        self.generations.append(Generation(request))
        return self.generations[-1].stream()

    async def close(self) -> None:
        self.closed = True

    def show(self, view: NetworkView, *events: Event) -> None:
        self.feed.put_nowait(FeedUpdate(view=view, telemetry=TELEMETRY, events=events))


class Node:
    """What the app attaches to: gives out one attachment after another, or errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.attachments: list[FakeAttachment] = []
        self.first = FakeAttachment()

    async def attach(self) -> FakeAttachment:
        if self.errors:
            raise self.errors.pop(0)
        attachment = FakeAttachment() if self.attachments else self.first
        self.attachments.append(attachment)
        return attachment
