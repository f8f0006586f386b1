"""What benchmarks print: conditions, medians of ways that took turns, ratios and their goals."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

SAYS = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b}


@dataclass(frozen=True)
class Ratio:
    """How two ways compare within one run, and what it should be."""

    name: str
    value: float
    sign: str = ">="
    goal: float = 0.0

    @property
    def met(self) -> bool:
        return bool(SAYS[self.sign](self.value, self.goal))


@dataclass
class Report:
    """The figures of one benchmark. `unit` is of the rows."""

    title: str
    unit: str
    conditions: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, list[float]] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conditions |= {
            "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
            "machine": platform.machine(),
            "python": platform.python_version(),
            "load before": round(psutil.getloadavg()[0], 1),
        }

    def add(self, way: str, figure: float) -> None:
        """One figure of a way, of one round."""
        self.rows.setdefault(way, []).append(figure)

    def compare(self, one: str, other: str, sign: str, goal: float, name: str = "") -> None:
        """The median over the rounds of one way's figure to another's in the same round."""
        pairs = zip(self.rows[one], self.rows[other], strict=True)
        value = statistics.median(a / b for a, b in pairs)
        self.ratios.append(Ratio(name or f"{one} / {other}", value, sign, goal))

    def print(self, *, as_json: bool) -> None:
        """All of it, for people or for programs."""
        self.conditions["load after"] = round(psutil.getloadavg()[0], 1)
        if as_json:
            print(json.dumps(self._plain(), indent=1))
            return
        told = ", ".join(f"{name} {value}" for name, value in self.conditions.items())
        print(f"{self.title}: {told}")
        for way, found in self.rows.items():
            spread = f"{min(found):.4g}-{max(found):.4g}, {len(found)} rounds"
            print(f"  {way:44}{statistics.median(found):10.4g} {self.unit} ({spread})")
        for one in self.ratios:
            missed = "" if one.met else "  MISSED"
            print(f"  {one.name:44}{one.value:10.3f} (goal {one.sign} {one.goal:g}){missed}")
        for note in self.notes:
            print(f"  {note}")

    def _plain(self) -> dict[str, Any]:
        ratios = [
            {"name": r.name, "value": r.value, "goal": f"{r.sign} {r.goal:g}", "met": r.met}
            for r in self.ratios
        ]
        medians = {way: statistics.median(found) for way, found in self.rows.items()}
        return {
            "title": self.title,
            "unit": self.unit,
            "conditions": self.conditions,
            "medians": medians,
            "rounds": self.rows,
            "ratios": ratios,
            "notes": self.notes,
        }


async def in_turns(
    report: Report, ways: dict[str, Callable[[], Awaitable[float]]], rounds: int
) -> None:
    """Run all ways, so many times in turns; the first time warms up and does not count."""
    for number in range(rounds + 1):
        for way, run in ways.items():
            figure = await run()
            if number:
                report.add(way, figure)


def common_options(parser: argparse.ArgumentParser, rounds: int = 5) -> None:
    """The options that all benchmarks over the link proxy have."""
    parser.add_argument("--model", default="demo", help="`demo`, a GGUF file or a directory")
    parser.add_argument("--dtype", default="bf16", choices=["fp32", "bf16", "int8", "int4"])
    parser.add_argument("--threads", type=int, default=1, help="of each host")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1, help="of the link proxy")
    parser.add_argument("--json", action="store_true")


def conditions(given: argparse.Namespace) -> dict[str, Any]:
    """What was asked for."""
    told = {name.replace("_", " "): value for name, value in vars(given).items()}
    told.pop("json")
    return told | {"model": Path(given.model).name}
