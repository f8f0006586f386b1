"""What must not be seen in processes that ran for a while: pure functions of what they told."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.chaos.ledger import CANARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from diffuse_core.domain.view import Telemetry
    from tests.e2e.lives import Life

MIB = 2**20
LEAK_MIB = 2.0
"""MiB a minute by which a process may usually grow (the median over quarters of a minute). A leak
of 1 KiB for each token would be five times as much."""
STEPS_MIB = 96.0
"""So much it may grow in its second half in all, by what it does for the first time."""
QUARTER_S = 15.0
LEAST_QUARTERS = 16
"""Of the second half: who lived for less than eight minutes is not judged. Lengths and batches
that a host meets for the first time make it grow for minutes."""
WARM_S = 65.0
"""After a start or a stop, figures of the last minute tell of that."""
LAG_S = 0.3
OF_THE_MACHINE = 4.0
"""Where a process that does nothing is late as well, nodes may be so many times as late."""
BUSY = 2.0
"""Where more than so many processes want each core, nodes may be later in proportion: the kernel
prefers those that hardly run, such as the one that does nothing."""
FILES = 24
TASKS = 40
A_NODE = 4
"""Files and tasks that a node may have for each other node that it knows: links both ways, what
reads them, and those of clients that have just gone."""


def left_over(name: str, told: Telemetry) -> str:
    """What a node holds of sessions though nothing is asked; empty for nothing."""
    if told.sessions or told.kv_used:
        return f"{name} holds {told.sessions} sessions and {told.kv_used} bytes of KV at rest"
    return ""


def piled_up(name: str, before: Telemetry | None, now: Telemetry, nodes: int) -> list[str]:
    """Files and tasks that a node at rest has too many of.

    Compared with the same process at its first rest, when there was one.
    """
    found = []
    for what, have, base, least in (
        ("open files", now.open_files, before and before.open_files, FILES),
        ("tasks", now.tasks, before and before.tasks, TASKS),
    ):
        most = (least if base is None else base) + A_NODE * nodes
        if have > most:
            found.append(f"{name} has {have} {what} at rest, limit {most}")
    return found


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least squares: units a minute, of (seconds, units); None for less than two moments."""
    times = [at for at, _ in points]
    if len(points) < 2 or times[0] == times[-1]:
        return None
    return 60 * statistics.linear_regression(times, [size for _, size in points]).slope


def second_half(life: Life) -> list[tuple[float, float]]:
    """(seconds, MiB) of a process in the second half of its life."""
    middle = life.began + life.age() / 2
    return [(at, told.process_rss / MIB) for at, told in life.samples if at >= middle]


def usual_growth(life: Life) -> float | None:
    """MiB a minute by which a process usually grew in its second half; None for a short life.

    The median over quarters of a minute: a node grows in a few steps, by what it does for the
    first time, but a leak goes on.
    """
    sizes: dict[int, float] = {}
    for at, size in second_half(life):
        sizes[int((at - life.began) / QUARTER_S)] = size
    if len(sizes) <= LEAST_QUARTERS:
        return None
    steps = [after - before for before, after in pairwise(sizes.values())]
    return statistics.median(steps) * 60 / QUARTER_S


def grows(life: Life) -> str:
    """How a process grows without an end; empty when it does not, or is not old enough."""
    usual = usual_growth(life)
    if usual is None:
        return ""
    sizes = [size for _, size in second_half(life)]
    if usual > LEAK_MIB:
        return f"{life.name} grows by {usual:.1f} MiB a minute, limit {LEAK_MIB:g}"
    if sizes[-1] - sizes[0] > STEPS_MIB:
        return f"{life.name} grew by {sizes[-1] - sizes[0]:.0f} MiB in its second half"
    return ""


def undisturbed(life: Life) -> Iterator[tuple[float, Telemetry]]:
    """What a process told that was not just started or stopped."""
    for at, told in life.samples:
        stopped = any(begin <= at <= end + WARM_S for begin, end in life.pauses)
        if at > life.began + WARM_S and not stopped:
            yield at, told


def lag_limit(idle_s: float, load: float) -> float:
    """How late a node's loop may be (p99 of a minute), in seconds.

    Args:
        idle_s: the same of a process that does nothing.
        load: how many processes wanted each core.
    """
    return max(LAG_S * max(1.0, load / BUSY), OF_THE_MACHINE * idle_s)


def is_late(life: Life, limit_at: Callable[[float], float]) -> str:
    """How late a loop is beyond the limit of that moment; empty when it is not."""
    for at, told in undisturbed(life):
        limit = limit_at(at)
        if told.loop_lag_p99_s > limit:
            return (
                f"the loop of {life.name} was late by {1000 * told.loop_lag_p99_s:.0f} ms (p99 of "
                f"a minute), limit {1000 * limit:.0f}"
            )
    return ""


def worst_lag(life: Life) -> float:
    """Seconds: the largest 99th percentile of a minute."""
    return max((told.loop_lag_p99_s for _, told in undisturbed(life)), default=0.0)


def said_in_log(name: str, log: str, needles: Iterable[str] = (CANARY,)) -> list[str]:
    """What no log may have: tracebacks, and prompts."""
    found = []
    if "Traceback" in log:
        place = log.index("Traceback")
        found.append(f"a traceback in the log of {name}: {log[place : place + 1500]}")
    found += [f"the log of {name} tells a prompt" for needle in needles if needle in log]
    return found
