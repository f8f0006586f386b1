"""What was measured, as a table for people and as plain data for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.cli.bench.figures import Row, ratio
from diffuse_core.cli.common import table
from diffuse_core.domain.pass_times import ms_text, stage_times
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.cli.bench.measure import Hop, Results

FORMAT = 1
MAX_FILE = 2**22
SHOWN_EVENTS = 10
SAME = ("model", "fingerprint", "contract", "prompt_tokens", "tokens", "concurrency")
"""Conditions without which two measurements do not compare."""

_TITLES = {
    "first_token_s": "first token",
    "opening_s": "of it opening the route",
    "prefill_tokens_per_s": "prefill",
    "decode_tokens_per_s": "decode",
    "token_gap_p50_ms": "between tokens, p50",
    "token_gap_p95_ms": "between tokens, p95",
    "tokens_per_pass": "tokens of a pass",
    "aggregate_tokens_per_s": "all together",
    "session_tokens_per_s": "each session",
}
_WAYS = {"plain": "1 session", "speculative": "1 session, speculating"}


class Former(msgspec.Struct):
    """What is read of a former measurement."""

    bench: int
    conditions: dict[str, Any]
    rows: dict[str, Row]


def read_former(path: Path) -> Former:
    """A file that `bench --json` wrote.

    Raises:
        UsageError: it cannot be read, or is something else.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        found = msgspec.json.decode(data, type=Former)
    except OSError as error:
        raise UsageError(f"--compare: cannot read {path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(
            f"--compare: {path} is nothing that `diffuse bench --json` wrote"
        ) from error
    if found.bench != FORMAT:
        raise UsageError(f"--compare: {path} is of another version; measure anew with this one")
    return found


def title(name: str) -> str:
    """A row's name for people."""
    way, _, kind = name.partition(".")
    if way.startswith("sessions_"):
        count = way.removeprefix("sessions_")
        shown = "1 session, short prompt" if count == "1" else f"{count} sessions at once"
    else:
        shown = _WAYS.get(way, way)
    return f"{shown}: {_TITLES.get(kind, kind)}"


def figure_text(figure: float) -> str:
    """Four digits or so."""
    return f"{figure:.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"


def text_lines(results: Results, conditions: dict[str, Any], former: Former | None) -> list[str]:
    """All of it for people."""
    lines = [f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in conditions.items()]
    lines += ["", *_row_lines(results, former), "", *_hop_lines(results)]
    if others := sum(results.routes.values()) - results.routes.get(results.usual_route, 0):
        lines.append(f"answers of one session that took another route: {others}")
    for count in sorted(results.refused):
        refused, failed = results.refused[count], results.failed[count]
        if refused or failed:
            lines.append(f"{count} sessions at once: {refused} refused, {failed} failed")
    if results.events:
        lines.append(f"{results.healed} stages were lost and replaced; what happened:")
        lines += [f"  {clean_line(event)}" for event in results.events[:SHOWN_EVENTS]]
    if former is not None:
        lines += unlike(conditions, former)
    if exact := [n for n in sorted(results.prompt_lengths) if n != conditions["prompt_tokens"]]:
        lines.append(f"prompts came out as {_shown(exact)} tokens; prefill counts these")
    if not results.complete:
        lines.append(f"not complete: {results.rounds} rounds were measured")
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(clean_line(str(one)) for one in value)
    return clean_line(str(value))


def _row_lines(results: Results, former: Former | None) -> list[str]:
    head = ["", "MEDIAN", "UNIT", "LEAST", "MOST"]
    if former is not None:
        head += ["BEFORE", "RATIO"]
    rows = [tuple(head)]
    for name, row in results.rows.items():
        cells = [title(name), figure_text(row.median), row.unit]
        cells += [figure_text(row.least), figure_text(row.most)]
        if former is not None:
            cells += _before(row, former.rows.get(name))
        rows.append(tuple(cells))
    return table(rows).splitlines()


def _before(row: Row, before: Row | None) -> list[str]:
    if before is None:
        return ["-", "-"]
    times = ratio(row.median, before.median)
    if times is None:
        return [figure_text(before.median), "-"]
    text = f"{times:.3f}"
    if text != "1.000":
        text += " better" if (times > 1) == (row.better == "higher") else " worse"
    return [figure_text(before.median), text]


def unlike(conditions: dict[str, Any], former: Former) -> list[str]:
    """What keeps the two measurements from being compared, a line each."""
    now = msgspec.json.decode(msgspec.json.encode(conditions))
    return [
        f"{name.replace('_', ' ')} was {_shown(former.conditions.get(name))}: "
        "the two are not alike"
        for name in SAME
        if former.conditions.get(name) != now.get(name)
    ]


def _hop_lines(results: Results) -> list[str]:
    """Each Stage: how far it is from here, and where the time of a pass went."""
    if not results.hops:
        return []
    rows: list[tuple[str, ...]] = [
        ("STAGE", "VIA", "RTT FROM HERE", "WAY THERE", "QUEUE", "COMPUTE", "SHARE")
    ]
    for hop, times in zip(results.hops, hop_times(results), strict=True):
        rows.append(_hop_row(hop, times))
    note = "way, queue, compute: ms of a pass, p50, plain; the way to the first is from the last"
    return [*table(rows).splitlines(), note]


def hop_times(results: Results) -> list[dict[str, float]]:
    """For each Stage of the usual Route p50 and p95 of wire, queue and compute, and shares."""
    route = results.usual_route
    # The first pass is taken for the prompt's, which is left out here already.
    found = stage_times([(), *results.passes.get(route, [])], len(route))
    if not found:
        return [{} for _ in route]
    return [
        {
            "wire_p50_ms": one.wire.p50,
            "wire_p95_ms": one.wire.p95,
            "queue_p50_ms": one.queue.p50,
            "queue_p95_ms": one.queue.p95,
            "compute_p50_ms": one.compute.p50,
            "compute_p95_ms": one.compute.p95,
            "wire_share": one.parts[0],
            "queue_share": one.parts[1],
            "compute_share": one.parts[2],
        }
        for one in found
    ]


def _hop_row(hop: Hop, times: dict[str, float]) -> tuple[str, ...]:
    trip = "-" if hop.rtt_s is None else f"{ms_text(hop.rtt_s * 1000)} ms"
    shown = [
        ms_text(times[f"{part}_p50_ms"]) if times else "-" for part in ("wire", "queue", "compute")
    ]
    share = sum(value for name, value in times.items() if name.endswith("_share"))
    name = f"{clean_line(hop.step.node[:8])} {hop.step.slice}"
    return (name, hop.step.via, trip, *shown, f"{share:.0%}" if times else "-")


def plain_data(
    results: Results, conditions: dict[str, Any], former: Former | None
) -> dict[str, Any]:
    """All of it for scripts, and for --compare."""
    rows = results.rows
    stages = [
        {
            "node": hop.step.node,
            "slice": hop.step.slice,
            "via": hop.step.via,
            "rtt_s": hop.rtt_s,
            **times,
        }
        for hop, times in zip(results.hops, hop_times(results), strict=bool(results.hops))
    ]
    told = {
        "bench": FORMAT,
        "complete": results.complete,
        "conditions": conditions,
        "prompt_lengths": sorted(results.prompt_lengths),
        "rows": rows,
        "stages": stages,
        "routes": [{"route": route, "answers": n} for route, n in results.routes.items()],
        "sessions": [
            {"sessions": n, "refused": results.refused[n], "failed": results.failed[n]}
            for n in sorted(results.refused)
        ],
        "healed": results.healed,
        "events": results.events,
    }
    if former is not None:
        told["ratios"] = {
            name: ratio(row.median, former.rows[name].median)
            for name, row in rows.items()
            if name in former.rows
        }
        told["unlike"] = unlike(conditions, former)
    return told
