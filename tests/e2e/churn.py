"""Churn: host processes that are killed, ended, paused and started again at random.

    python -m tests.e2e.churn --minutes 5 --hosts 12 --seed 1

prints what it does and a table of figures, and ends with 1 when the network did not stand it. The
same seed does the same things at the same times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import psutil
import torch

from diffuse_core import wiring
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services.loop_lag import LoopLag
from tests.e2e.churn_plan import Action, draw_actions
from tests.e2e.churn_report import judge, table
from tests.e2e.lives import Watch, until
from tests.services.tiny_model import LAYERS, TinyModel, ids, make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.lives import Life

STEADY = 3
AT_ONCE = 3
"""So many are started together: each start takes seconds of a core."""
SETTLE_S = 60.0
QUERY_S = 60.0
TOKENS = 12
LENGTHS = range(3, 23)
WARM_ROUNDS = 6
"""Routes go by chance; after so many every host has seen most of the lengths."""
SOME_EXITS = {0, 3, 4, 5, 6, 7}
"""What a query in a network under churn may end with; README tells them."""


class Idle(NamedTuple):
    """What a node takes while nothing happens: percent of a core, bytes a second."""

    cpu: float
    bytes_in: float
    bytes_out: float


@dataclass
class Churn:
    """A churn and what came of it."""

    watch: Watch
    model: TinyModel
    hosts: int
    seed: int
    seconds: float
    queries: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    idle: dict[str, Idle] = field(default_factory=dict)
    machine: LoopLag = field(default_factory=LoopLag)
    turn: Lock = field(default_factory=Lock)
    began: float = 0.0
    settled_s: float = 0.0

    def __post_init__(self) -> None:
        self.names = [f"host-{number}" for number in range(self.hosts)]
        # Capacities differ, so that slices do; nobody holds the model alone.
        sizes = random.Random(self.seed)
        self.layers = {name: sizes.randint(3, LAYERS - 3) for name in self.names}
        self.steady = ["sentinel", *self.names[:STEADY]]

    async def run(self, idle_s: float = 0.0) -> None:
        """All of it: start, idle a while, strike, settle, compare."""
        self.machine.start()
        await self._begin()
        await self._warm_up()
        if idle_s:
            await self._measure_idle(idle_s)
        self.began = time.time()
        actions = draw_actions(self.seed, [*self.names, "sentinel"], self.steady, self.seconds)
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for action in actions:
                await asyncio.sleep(max(0.0, start + action.at - time.monotonic()))
                say(action)
                group.create_task(self._strike(action))
            await asyncio.sleep(max(0.0, start + self.seconds - time.monotonic()))
        await self._settle()
        await self._compare()
        self.machine.stop()
        judge(self)

    # --- the start ------------------------------------------------------------------------

    async def _begin(self) -> None:
        self.bootstrap = (await self.watch.start("sentinel")).address
        for at in range(0, self.hosts, AT_ONCE):
            group = self.names[at : at + AT_ONCE]
            await asyncio.gather(*(self._start(name, "127.0.0.1:0") for name in group))
            for name in group:
                await self.watch.until_ready(self.watch.life(name))
        say(f"{self.hosts} hosts are ready")

    async def _start(self, name: str, listen: str) -> None:
        if name == "sentinel":
            await self.watch.start(name, "--listen", listen)
            return
        limit = str(self.layers[name])
        await self.watch.start(
            name, "--bootstrap", self.bootstrap, "--listen", listen, "--max-layers", limit
        )

    async def _warm_up(self) -> None:
        """Ask for what the queries ask: a host grows when it does something for the first time."""
        async with wiring.observe((self.bootstrap,), self.watch.network) as (_, client):
            for length in list(LENGTHS) * WARM_ROUNDS:
                ask = GenerateRequest(
                    model="tiny", raw=words(length), max_tokens=TOKENS, ignore_eos=True
                )
                await client.whole(ask)

    async def _measure_idle(self, seconds: float) -> None:
        """CPU and traffic of each process with nobody attached."""
        await asyncio.sleep(10)
        lives = self.watch.running()
        await self.watch.detach()
        before = {life.name: _cpu_s(life) for life in lives}
        last = {life.name: life.samples[-1][1] for life in lives}
        await asyncio.sleep(seconds)
        cpu = {life.name: 100 * (_cpu_s(life) - before[life.name]) / seconds for life in lives}
        begin = time.time()
        self.watch.attach()
        await until(lambda: all(life.samples[-1][0] > begin for life in lives))
        for life in lives:
            then = last[life.name]
            now = next(telemetry for at, telemetry in life.samples if at > begin)
            self.idle[life.name] = Idle(
                cpu[life.name],
                (now.bytes_in - then.bytes_in) / (now.uptime_s - then.uptime_s),
                (now.bytes_out - then.bytes_out) / (now.uptime_s - then.uptime_s),
            )

    # --- the strikes ----------------------------------------------------------------------

    async def _strike(self, action: Action) -> None:
        if action.kind == "query":
            await self._ask(action)
        elif action.kind == "pause":
            await self.watch.pause(action.target, action.lasts)
        else:
            how = signal.SIGKILL if action.kind == "kill" else signal.SIGTERM
            listen = self.watch.life(action.target).address
            await self.watch.end(action.target, how)
            await asyncio.sleep(action.lasts)
            await self._start(action.target, listen if action.same_port else "127.0.0.1:0")

    async def _ask(self, action: Action) -> None:
        """One query, of a node that may be about to die; its words must be right all the same."""
        length = LENGTHS[action.salt % len(LENGTHS)]
        command = [
            "query", "--json", "--raw", "--ignore-eos", "--model", "tiny",
            *self.watch.network.arguments(),
            "--bootstrap", self.watch.life(action.target).address,
            "--max-tokens", str(TOKENS), "--prompt", words(length, action.salt),
        ]  # fmt: skip
        begin = time.monotonic()
        code, out, err = await self.watch.command(command, QUERY_S)
        self.queries["slowest ms"] = max(
            self.queries["slowest ms"], round(1000 * (time.monotonic() - begin))
        )
        self.queries[f"exit {code}"] += 1
        if code not in SOME_EXITS:
            self.problems.append(f"{action}: exit {code}: {err[-500:]}")
        elif code:
            say(f"    query: exit {code}: {err.strip()[-300:]}")
        else:
            right = await asyncio.to_thread(self._right, length, action.salt)
            if tuple(json.loads(out)["token_ids"]) != right:
                self.problems.append(f"{action}: wrong words: {out[-500:]}")

    def _right(self, length: int, salt: int) -> tuple[int, ...]:
        with self.turn:
            return self.model.says(ids(length, salt), TOKENS, ignore_eos=True)

    # --- the end --------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until all views agree, which they must within a while."""
        self.settled_s = SETTLE_S
        with contextlib.suppress(TimeoutError):
            self.settled_s = await until(lambda: not self._differences(), SETTLE_S)
        self.problems += self._differences()

    def _differences(self) -> list[str]:
        views = {life.name: _plain(life.view) for life in self.watch.running()}
        found = [f"{life.name} is not ready" for life in self.watch.running() if not life.ready]
        return found + self._unlike({name: view for name, view in views.items() if view})

    def _unlike(self, views: dict[str, dict[str, Any]]) -> list[str]:
        """What each view says that is not so, or that the others do not say."""
        here = {life.node for life in self.watch.running()}
        names = {life.node: life.name for life in self.watch.lives}
        found = []
        first = next(iter(views.values()), {})
        for name, view in views.items():
            alive = {node for node, seen in view.items() if seen[0] == "alive"}
            for node in here ^ alive:
                wrong = "does not hold alive" if node in here else "holds alive the dead"
                found.append(f"{name} {wrong} {names.get(node, node)}")
            found += [
                f"{name} says of {names.get(node, node)} {view.get(node)}, others {seen}"
                for node, seen in first.items()
                if node in here and view.get(node) != seen
            ]
        if len(views) < len(here):
            found.append(f"only {len(views)} of {len(here)} nodes say anything")
        return found

    async def _compare(self) -> None:
        """What `status --json` says, asked of each node by its own state directory."""
        views = {}
        for life in self.watch.running():
            code, out, err = await self.watch.status(life.name)
            if code:
                self.problems.append(f"status of {life.name}: exit {code}: {err[-500:]}")
                continue
            nodes = json.loads(out)["nodes"]
            views[life.name] = {
                one["node"]: (one["liveness"], one["slice"], one["state"]) for one in nodes
            }
        self.problems += [f"status: {text}" for text in self._unlike(views)]


def _cpu_s(life: Life) -> float:
    return sum(psutil.Process(life.pid).cpu_times()[:2])


def _plain(view: Any) -> dict[str, Any]:
    """Of each node how it stands and what it holds."""
    nodes = view.nodes if view is not None else ()
    return {one.node: (one.liveness, one.slice, one.state) for one in nodes}


def say(text: object) -> None:
    """A line of the story, at once."""
    click.echo(f"{time.strftime('%H:%M:%S')} {text}")
    sys.stdout.flush()


async def churn(directory: Path, hosts: int, seed: int, seconds: float, idle_s: float) -> Churn:
    """Run one in `directory`; look at `problems` of what comes back."""
    torch.set_num_threads(1)
    model = make_tiny_model(directory / "tiny")
    async with Watch(directory, model.path, "--log-level", "info") as watch:
        story = Churn(watch, model, hosts, seed, seconds)
        await story.run(idle_s)
    story.problems += [f"left over: {process}" for process in watch.left_over()]
    return story


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as a command."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--hosts", type=int, default=12)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--idle", type=float, default=30.0, help="seconds to measure idle cost")
    given = options.parse_args(arguments)
    say(f"seed {given.seed}, {given.hosts} hosts, {given.minutes:g} minutes")
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DIFFUSE_CACHE_DIR"] = f"{directory}/cache"
        story = asyncio.run(
            churn(Path(directory), given.hosts, given.seed, 60 * given.minutes, given.idle)
        )
    click.echo(table(story))
    for problem in story.problems:
        click.echo(f"PROBLEM: {problem}")
    click.echo(f"seed {given.seed}: {'failed' if story.problems else 'stood'}")
    return bool(story.problems)


if __name__ == "__main__":
    sys.exit(main())
