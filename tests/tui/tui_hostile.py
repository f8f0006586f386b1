"""What nobody sends who means well, though it has the right types: views, answers, news."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import msgspec

from diffuse_core.domain.machine import GpuFigures, HostProgress, Temperature
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice, gaps, replicas_per_layer
from diffuse_core.domain.view import (
    Audited,
    Coming,
    Comparison,
    Event,
    Failed,
    FeedUpdate,
    Finished,
    GenerateEvent,
    Healed,
    ModelView,
    NetworkView,
    NodeView,
    RelayFigures,
    Remedy,
    RouteChosen,
    RouteStep,
    StageTiming,
    Telemetry,
    TextDelta,
    Timings,
    Usage,
    Waiting,
)
from diffuse_tui.presenter.fit import Changes, Fit, Ranked, Told
from diffuse_tui.presenter.hosting import Choice, Completed, News, Planned, Status

T = TypeVar("T")

TEXTS = (
    "",
    " ",
    "\x1b[2J\x1b[31mred\x1b]52;c;AAAA\x07\x1bP+q\x1b\\",
    "\u202eright to left\u2066\u200f\u061c",
    "日本語の名前で幅が二つ",
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽" * 3,
    "e" + "\u0301" * 200,
    "a\0b\x7f\x85\u2028c\u2029d\r\ne",
    "[bold red]markup[/] [@click=app.quit]x[/] [[",
    "]" * 50 + "[/",
    "x" * 65_536,
    "字" * 3000,
    "\U000e0041\ufe0f\u200d\u180e\u3164",
    "../../../etc/passwd",
    "line\n" * 100,
    "\t" * 30,
    "ﷺ" * 20,
    "\ud83d"[:0] + "-" * 80,
)
NUMBERS = (float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e308, -1e308, 5e-324, 0.3, 42.0)
WHOLES = (-(2**63), -1, 0, 1, 3, 2**31, 2**50, 2**63 - 1)
MARKDOWN = (
    "```python\nx = 1\n" * 40,
    "`" * 3000,
    "> " * 400 + "deep\n",
    "- a\n  " * 100 + "\n",
    "|a" * 300 + "|\n" + "|-" * 300 + "|\n" + "|b" * 300 + "|\n",
    "*" * 3000 + "a" + "_" * 3000,
    "[" * 2000 + "](" * 500,
    "# " * 200 + "\n" * 100,
    "![x](javascript:alert(1)) <script>&amp;&#0;&#x10ffff;</script>\n",
    "1. " * 300 + "\n99999999999999999999. x\n",
    "~~~\n```\n~~~\n```\n",
    "&" * 1000 + "\\" * 1000,
    "word " * 2000,
    "x" * 30_000,
)


class Hostile:
    """Draws all of that from one seed.

    What is drawn goes through the encoding of the feed, so that nothing is tried which could
    never arrive.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._now = 1_767_268_800.0

    def text(self, limit: int = 70_000) -> str:
        """Text of at most so many characters."""
        drawn = self.rng.choice(TEXTS)
        return (drawn + self.rng.choice(("", drawn, "7", "é")))[:limit]

    def number(self) -> float:
        """A figure."""
        return self.rng.choice((*NUMBERS, self.rng.uniform(-5, 500)))

    def whole(self) -> int:
        """A whole figure."""
        return self.rng.choice((*WHOLES, self.rng.randrange(10**6)))

    def node_id(self) -> str:
        """An id out of few, many alike in their first characters, or none at all."""
        number = self.rng.randrange(40)
        if number < 3:
            return self.text(100)
        return f"{number % 4:08x}" + f"{number:056x}"

    def part(self, layers: int = 1024) -> Slice:
        """A slice, now and then beyond the model."""
        most = 1024 if self.rng.random() < 0.1 else max(1, min(1024, layers))
        start = self.rng.randrange(most)
        return Slice(start, self.rng.randrange(start + 1, most + 1))

    def node(self, models: list[tuple[str, str, int]]) -> NodeView:
        """A node that holds some of one of the models, or nothing."""
        rng, name = self.rng, self.node_id()
        facts: dict[str, Any] = {
            "node": name,
            "short": name[:8],
            "role": rng.choice(("client", "host", "sentinel")),
            "liveness": rng.choice(("alive", "alive", "suspect", "dead")),
            "last_seen_s": self.number(),
            "version": self.text(200),
            "me": rng.random() < 0.1,
            "addresses": tuple(self.text(100) for _ in range(rng.randrange(3))),
            "relays": tuple(self.node_id() for _ in range(rng.randrange(3))),
            "rtt_s": rng.choice((None, self.number())),
            "distance_s": rng.choice((None, self.number())),
            "quarantine": rng.choice((None, None, "quarantined", "doubtful")),
        }
        if models and rng.random() < 0.8:
            model, fingerprint, layers = rng.choice(models)
            facts |= {
                "model": model,
                "fingerprint": fingerprint,
                "contract": rng.choice(("fp32", "int4", None)),
                "slice": rng.choice((None, self.part(layers), self.part(layers))),
                "state": rng.choice(("claiming", "loading", "ready", "ready", "leaving", None)),
                "capacity": self.whole(),
                "sessions": self.whole(),
                "kv_used": self.whole(),
                "kv_budget": self.whole(),
                "tokens_per_s": self.number(),
            }
        return NodeView(**facts)

    def model(self, name: str, fingerprint: str, layers: int, held: list[Slice]) -> ModelView:
        """A model whose figures need not agree with each other."""
        rng = self.rng
        true = rng.random() < 0.7
        counts = replicas_per_layer(layers, held) if true else ()
        missing = gaps(layers, held) if true and layers else (self.part(),)
        shape = ModelShape(
            layers=max(1, layers),
            hidden=64,
            vocab=1000,
            context=1024,
            layer_bytes=rng.choice((0, 2**20, 2**40)),
            embedding_bytes=rng.choice((0, 2**20)),
            head_bytes=0,
            kv_bytes=rng.choice((0, 512)),
        )
        return ModelView(
            id=name,
            fingerprint=fingerprint,
            contract=rng.choice(("fp32", "bf16", "int8", "int4")),
            layers=layers if rng.random() < 0.95 else self.rng.choice((-1, 0, 5000)),
            context=self.whole(),
            state=rng.choice(("Robust", "Fragile", "Incomplete")),
            servable=rng.random() < 0.7,
            missing=missing,
            replicas=counts,
            min_replicas=self.whole(),
            target_replicas=rng.choice((0, 2, 2, 2**40)),
            hosts=self.whole(),
            weakest=rng.choice((None, self.part(layers))),
            coming=tuple(
                Coming(self.part(layers), "loading", self.whole()) for _ in range(rng.randrange(3))
            ),
            remedy=rng.choice((None, Remedy(self.part(layers), self.whole(), "Fragile", 1))),
            shape=rng.choice((None, shape)),
        )

    def view(self) -> NetworkView:
        """A network; its time jumps now and then by years, both ways."""
        rng = self.rng
        self._now += rng.choice((1.0, 1.0, 0.0, -30.0, 1e9, -1e9, 3600.0))
        many = rng.random()
        sizes = (0, 1, 1, 30, 30, 126, 1024)
        models = [
            (self.text(300), rng.choice(("ab" * 32, self.text(80))), rng.choice(sizes))
            for _ in range(500 if many < 0.02 else rng.randrange(4))
        ]
        count = 4096 if many > 0.98 else rng.choice((0, 1, 3, 60))
        nodes = [self.node(models) for _ in range(count)]
        shown = []
        for name, fingerprint, layers in models:
            held = [n.slice for n in nodes if n.slice is not None and n.model == name]
            shown.append(self.model(name, fingerprint, layers, held))
        at = rng.choice((self._now, self._now, self._now, self.number()))
        me = rng.choice((None, nodes[0].node if nodes else None, self.node_id()))
        return NetworkView(taken_at=at, me=me, nodes=tuple(nodes), models=tuple(shown))

    def telemetry(self) -> Telemetry:
        """Figures of this machine."""
        rng = self.rng
        whole = ("memory_total", "memory_available", "process_rss", "weight_bytes", "kv_used",
                 "kv_budget", "sessions", "bytes_in", "bytes_out", "tasks")  # fmt: skip
        floats = ("cpu_percent", "uptime_s", "tokens_per_s", "bytes_in_per_s", "bytes_out_per_s",
                  "loop_lag_p50_s", "loop_lag_p99_s", "loop_lag_max_s", "loop_lag_ever_p99_s",
                  "loop_lag_ever_max_s")  # fmt: skip
        gpu = GpuFigures(self.text(64), self.whole(), self.whole(), self.number(), self.number())
        progress = HostProgress(
            "loading", self.number(), rng.choice((None, self.part())), self.whole(), self.whole()
        )
        return Telemetry(
            **{name: self.whole() for name in whole},
            **{name: self.number() for name in floats},
            cpu_count=rng.choice((0, 1, -1, 4096)),
            device=self.text(),
            model=rng.choice((None, self.text())),
            slice=rng.choice((None, self.part())),
            stage=self.text(),
            relay=rng.choice((None, RelayFigures(self.whole(), self.whole(), self.whole()))),
            gpus=(gpu,) * rng.randrange(9),
            temperatures=(Temperature(self.text(32), self.number()),) * rng.randrange(5),
            progress=rng.choice((None, progress)),
            reason=self.text(256),
            disk_free=rng.choice((None, self.whole())),
        )

    def update(self) -> FeedUpdate:
        """One tick of the feed; now and then with a flood of events."""
        rng = self.rng
        count = 10_000 if rng.random() < 0.01 else rng.randrange(4)
        levels = ("info", "good", "warning", "error")
        events = [
            Event(rng.choice((self._now, self.number())), rng.choice(levels), self.text(512))
            for _ in range(count)
        ]
        telemetry = self.telemetry() if rng.random() < 0.8 else None
        update = FeedUpdate(view=self.view(), telemetry=telemetry, events=tuple(events))
        return travelled(update, FeedUpdate)

    # --- answers ----------------------------------------------------------------------------

    def step(self) -> RouteStep:
        """One Stage."""
        return RouteStep(
            self.node_id(), self.part(), self.rng.choice(("local", "direct", "relay"))
        )

    def route(self) -> tuple[RouteStep, ...]:
        """Any number of Stages, from none."""
        return tuple(self.step() for _ in range(self.rng.choice((0, 1, 2, 2, 40))))

    def answer_text(self) -> str:
        """Some of an answer."""
        return self.rng.choice((self.text, lambda: self.rng.choice(MARKDOWN)))()

    def event(self) -> GenerateEvent:
        """Something of a generation, in no order."""
        rng = self.rng
        if rng.random() < 0.6:
            times = tuple(
                StageTiming(self.number(), self.number(), self.number())
                for _ in range(rng.choice((0, 1, 3, 50)))
            )
            return TextDelta(self.answer_text(), (1,), stages=times, place=rng.randrange(3))
        found = Comparison(auditor=self.node_id(), agrees=False, difference=self.number())
        event = rng.choice(
            (
                RouteChosen(self.route(), self.whole()),
                Waiting(lost=self.step(), why=self.text(), seconds=self.number()),
                Healed(
                    lost=self.step(),
                    why=self.text(),
                    replaced_by=self.route(),
                    seconds=self.number(),
                    route=self.route(),
                ),
                Audited(
                    node=self.node_id(),
                    slice=self.part(),
                    verdict=rng.choice(("agrees", "differs", "unaudited")),
                    reason=self.text(),
                    rows=self.whole(),
                    auditors=(found,) * rng.randrange(3),
                    tolerance=self.number(),
                    decided_by=rng.choice((None, self.node_id())),
                    quarantined=(self.node_id(),) * rng.randrange(3),
                    doubtful=(self.node_id(),) * rng.randrange(3),
                ),
                Finished(
                    finish_reason=rng.choice(("stop", "length", "cancelled")),
                    usage=Usage(self.whole(), self.whole()),
                    timings=Timings(self.number(), self.number(), self.number()),
                    route=self.route(),
                    events=tuple(self.text() for _ in range(rng.randrange(3))),
                ),
                Failed(self.text(), self.whole()),
            )
        )
        return travelled(event, GenerateEvent)

    # --- hosting ----------------------------------------------------------------------------

    def news(self) -> News:
        """Something that the desk tells."""
        rng = self.rng
        part = (self.whole(), self.whole())
        fit = Fit(
            model=self.text(),
            slice=part,
            reason=self.text(),
            bytes={self.text(20): self.whole(), "total": self.whole()},
            changes=Changes(self.text(), self.text(20), self.text(20)),
            contract=self.text(),
            already_here=rng.choice((None, part)),
            more_memory=(Told(self.text()),) * rng.randrange(4),
            more_hosts=rng.choice((None, Told(self.text()))),
            ranking=(Ranked(self.text(), self.text()),) * rng.randrange(9),
        )
        status = Status(
            refusal=rng.choice(("", "", self.text())),
            doing=rng.choice(("", self.text())),
            failure=rng.choice(("", self.text())),
            mine=rng.random() < 0.3,
            other=rng.choice((None, self.whole())),
            keep=rng.random() < 0.5,
            ends=rng.random() < 0.7,
            earlier=rng.random() < 0.5,
        )
        planned = Planned(Choice(self.text()), rng.choice((None, fit)), self.text())
        return rng.choice((status, planned, Completed(self.text(), (self.text(),) * 50)))


def travelled(value: T, kind: Any) -> T:
    """As it comes out at the other end."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
