"""What a churn showed: false deaths, lag, memory, and a table of it all."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.churn import Churn
    from tests.e2e.lives import Life

GRACE_S = 10.0
"""Who was away less than so long ago may still be told dead: news takes its time."""
WARM_S = 60.0
LAG_S = 0.05
OF_THE_MACHINE = 3
"""Where the watcher, which does nothing, is late as well, nodes may be so many times as late."""
OWN_FILES = 16
FILES_A_NODE = 2
"""A link to each other node, and now and then one in each direction."""
GROWTH_MIB = 1.0
"""MiB a minute, beyond which memory is not flat."""
STEPS_MIB = 64.0
"""So much a host may grow in all by what it does for the first time."""
QUARTER_S = 15.0
LEAST_QUARTERS = 6
MIB = 2**20


def judge(story: Churn) -> None:
    """Add to the story's problems what it must not have shown."""
    watch = story.watch
    names = {life.node: life.name for life in watch.lives}
    story.problems += [
        f"{life.name} told {names[node]} dead, which ran"
        for life, at, node in watch.deaths_told()
        if watch.ran(node, at - GRACE_S, at)
    ]
    story.problems += [
        f"SIGTERM of a node gave exit code {code}"
        for (how, code), _ in watch.exit_codes.items()
        if how == "SIGTERM" and code
    ]
    limit = max(LAG_S, OF_THE_MACHINE * story.machine.lags().ever_p99_s)
    story.problems += [
        f"the loop of {life.name} is late by {1000 * late:.0f} ms (p99), limit {1000 * limit:.0f}"
        for life in watch.running()
        if life.age() > WARM_S and (late := life.samples[-1][1].loop_lag_ever_p99_s) > limit
    ]
    most = OWN_FILES + FILES_A_NODE * len(watch.running())
    story.problems += [
        f"{life.name} has {life.samples[-1][1].open_files} files open, limit {most}"
        for life in watch.running()
        if life.samples[-1][1].open_files > most
    ]
    for life in watch.running():
        if (grown := growth(life)) is not None and grown > GROWTH_MIB:
            story.problems.append(f"memory of {life.name} grows by {grown:.2f} MiB a minute")
        steps = list(_sizes(life, WARM_S, QUARTER_S).values()) or [0.0]
        if steps[-1] - steps[0] > STEPS_MIB:
            story.problems.append(f"{life.name} grew by {steps[-1] - steps[0]:.0f} MiB")


def growth(life: Life) -> float | None:
    """MiB a minute by which a process usually grew; None when it did not live on for long.

    The median over quarters of a minute: a host grows in a few steps, by what it does for the
    first time, but a leak goes on.
    """
    sizes = list(_sizes(life, WARM_S, QUARTER_S).values())
    if len(sizes) < LEAST_QUARTERS:
        return None
    return statistics.median(b - a for a, b in pairwise(sizes)) * 60 / QUARTER_S


def _sizes(life: Life, since: float, width: float) -> dict[int, float]:
    """Its size in MiB at the end of each `width` seconds from its age `since` on."""
    ages = [(at - life.began - since, t.process_rss / MIB) for at, t in life.samples]
    return {int(age / width): size for age, size in ages if age >= 0}


def detection(story: Churn) -> list[float]:
    """Seconds from each end of a process to each other's word of its death."""
    found = []
    for life, at, node in story.watch.deaths_told():
        ends = [
            one.ended for one in story.watch.lives
            if one.node == node and one.ended is not None and one.ended <= at
        ]  # fmt: skip
        if ends and life.began < max(ends):
            found.append(at - max(ends))
    return sorted(found)


def table(story: Churn) -> str:
    """All figures, for people."""
    watch = story.watch
    lags = story.machine.lags()
    found = detection(story)
    lines = [
        "",
        f"ends of processes: {dict(watch.exit_codes)}",
        f"pauses: {sum(len(life.pauses) for life in watch.lives)}",
        f"queries: {dict(sorted(story.queries.items()))}",
        f"views agreed {story.settled_s:.1f} s after the last strike was through",
        "a death was told after "
        + (
            f"{statistics.median(found):.1f} s (p50), {found[-1]:.1f} s (at most)"
            if found
            else "-"
        ),
        f"lag of the watcher itself: p99 {lags.ever_p99_s * 1000:.0f} ms, "
        f"at most {lags.ever_max_s * 1000:.0f} ms",
        "",
        "node       lives   RSS MiB  MiB/min   fds      tasks    lag p99/max ms   "
        "ever p99/max ms  idle: CPU %, kB/s in/out   RSS by minute",
    ]
    for life in watch.running():
        lives = sum(one.name == life.name for one in watch.lives)
        lines.append(_row(story, life, lives))
    return "\n".join(lines)


def _row(story: Churn, life: Life, lives: int) -> str:
    (_, last) = life.samples[-1]
    warm = next((t for at, t in life.samples if at > life.began + WARM_S), last)
    usual = growth(life)
    grown = "     -" if usual is None else f"{usual:+6.2f}"
    idle = story.idle.get(life.name)
    quiet = "-"
    if idle is not None:
        quiet = f"{idle.cpu:.2f}, {idle.bytes_in / 1000:.2f}/{idle.bytes_out / 1000:.2f}"
    return (
        f"{life.name:10} {lives:4}   {last.process_rss / MIB:7.1f}  {grown}   "
        f"{warm.open_files:3}→{last.open_files:3}  {warm.tasks:3}→{last.tasks:3}  "
        f"{last.loop_lag_p99_s * 1000:6.1f}/{last.loop_lag_max_s * 1000:6.0f}   "
        f"{last.loop_lag_ever_p99_s * 1000:6.1f}/{last.loop_lag_ever_max_s * 1000:6.0f}   "
        f"{quiet:24}  {' '.join(_by_minute(life))}"
    )


def _by_minute(life: Life) -> list[str]:
    return [f"{size:.0f}" for size in _sizes(life, 0.0, 60.0).values()]
