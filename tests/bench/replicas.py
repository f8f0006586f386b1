"""Many generations at once over two replicas of a model, against over one.

    python -m tests.bench.replicas [--sessions 32] [--tokens 48] [--dtype bf16]

Run by hand on a quiet machine of at least three cores: each host is a process pinned to a core of
its own, and the clients, all in this process, want one too. One replica and two take turns, over
the sealed links as always; what is said counts while all generations of a turn run. Where others
use the cores as well, look at the second figure: all that was said, per second of processor time
of the host that used most. That is what the hosts would do with a core each to themselves. Prints
how many generations each host got, too.

The default is more than one host can do: while a pass reads the weights once for all its rows, one
host serves eight generations of a small model almost as fast as four, and a second one brings
little, however well they are spread.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from diffuse_core.domain.view import GenerateRequest, RouteChosen, TextDelta
from tests.bench.report import Report, common_options, conditions, in_turns
from tests.bench.shaped_network import shaped_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.services.client import ClientService

PROMPT = "The river rises in the mountains and"
GOAL = 1.7


class _Way:
    """A network of some replicas, and a client of it."""

    def __init__(
        self,
        client: ClientService,
        model: str,
        given: argparse.Namespace,
        hosts: list[psutil.Process],
    ) -> None:
        self._client = client
        self._model = model
        self._given = given
        self._hosts = hosts
        self.shares: Counter[str] = Counter()
        self.per_core: list[float] = []

    async def run(self) -> float:
        """Tokens/s of all generations together, while all of them run."""
        clock = asyncio.get_running_loop().time
        before = self._used_s()
        said = await asyncio.gather(*(self._one(n, clock) for n in range(self._given.sessions)))
        busiest_s = max(b - a for a, b in zip(before, self._used_s(), strict=True))
        self.per_core.append(sum(map(len, said)) / busiest_s)
        begin = max(times[0] for times in said)
        end = min(times[-1] for times in said)
        return sum(begin < at <= end for times in said for at in times) / (end - begin)

    def _used_s(self) -> list[float]:
        return [sum(host.cpu_times()[:2]) for host in self._hosts]

    async def _one(self, number: int, clock: Callable[[], float]) -> list[float]:
        request = GenerateRequest(
            model=self._model,
            raw=f"{PROMPT} {number}",
            max_tokens=self._given.tokens,
            ignore_eos=True,
            speculate=False,
        )
        times: list[float] = []
        async for event in self._client.generate(request):
            if isinstance(event, RouteChosen):
                self.shares.update(step.node[:8] for step in event.route)
            elif isinstance(event, TextDelta):
                times += [clock()] * len(event.token_ids)
        return times


async def measure(given: argparse.Namespace) -> Report:
    """One replica and two in turns."""
    report = Report("replicas", "tokens/s", conditions(given))
    ways: dict[str, _Way] = {}
    async with AsyncExitStack() as stack:
        for count in (1, 2):
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = ("--dtype", given.dtype, "--threads", str(given.threads))
            made = shaped_network(place, given.model, *options, "--device", "cpu", seed=None)
            network = await stack.enter_async_context(made)
            for core in range(count):
                await network.add_host(f"host-{core}", within=("taskset", "-c", str(core)))
            model = await network.until_servable(count, replicas=count)
            _, client = await stack.enter_async_context(network.client())
            pids = [network.processes.running[f"host-{core}"].pid for core in range(count)]
            way = _Way(client, model.id, given, list(map(psutil.Process, pids)))
            ways[f"{count} replica(s), {given.sessions} sessions"] = way
        await in_turns(report, {name: way.run for name, way in ways.items()}, given.rounds)
    one, two = ways
    report.compare(two, one, ">=", GOAL, "two replicas / one")
    for name, way in ways.items():
        # The first turn warmed up.
        for figure in way.per_core[1:]:
            report.add(f"{name}, a core each", figure)
    report.compare(
        f"{two}, a core each", f"{one}, a core each", ">=", GOAL, "the same by processor time"
    )
    shares = ", ".join(f"{node} {count}" for node, count in ways[two].shares.items())
    report.notes.append(f"of two replicas got: {shares} sessions")
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    common_options(parser, rounds=3)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
