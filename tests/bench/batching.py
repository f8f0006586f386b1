"""Sessions at once on the demo model: how much more is said, and how long a token waits.

    python tests/bench/batching.py --model smol.gguf [--dtype bf16] [--threads 2] [--hosts 1]

Run by hand on a quiet machine. All of it is one process: hosts, sockets on loopback, clients. The
numbers of sessions take turns, so that a machine that drifts drifts for all. Prints its
conditions, the tokens/s of all sessions together while all of them run, and the time between
tokens of a running session without and with a long prompt arriving.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from diffuse_core.domain.view import GenerateRequest, RouteChosen, TextDelta
from tests.services.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.services.client import ClientService

PROMPT = "The river rises in the mountains and"
SENTENCE = "On day {} the boat passed {} villages, and the people there sold bread and salt. "
SESSIONS = (1, 2, 4, 8)
LONG_PROMPT = 2000
PLAIN_TOKENS = 40
LOADING_S = 300


class Session:
    """One generation; when each of its tokens came."""

    def __init__(self, client: ClientService, model: str, prompt: str, tokens: int) -> None:
        self._client = client
        self._request = GenerateRequest(
            model=model, raw=prompt, max_tokens=tokens, ignore_eos=True
        )
        self.prompt_tokens = 0
        self.at: list[float] = []

    async def run(self, enough: Callable[[], bool] = lambda: False) -> Session:
        async with aclosing(self._client.generate(self._request)) as events:
            async for event in events:
                if isinstance(event, RouteChosen):
                    self.prompt_tokens = event.prompt_tokens
                elif isinstance(event, TextDelta) and event.token_ids:
                    self.at.append(time.perf_counter())
                    if enough():
                        break
        return self


async def together(client: ClientService, model: str, count: int, tokens: int) -> float:
    """Tokens/s of `count` sessions, over the time in which all of them run."""
    sessions = [Session(client, model, f"{PROMPT} {n}", tokens) for n in range(count)]
    await asyncio.gather(*(session.run() for session in sessions))
    begin = max(session.at[0] for session in sessions)
    end = min(session.at[-1] for session in sessions)
    said = sum(begin < at <= end for session in sessions for at in session.at)
    return said / (end - begin)


async def said(session: Session, count: int) -> None:
    """Wait until so many tokens have come."""
    while len(session.at) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def long_text(salt: int) -> str:
    """About LONG_PROMPT tokens that no cache has seen."""
    return "".join(SENTENCE.format(n, n + salt) for n in range(LONG_PROMPT // 20))


async def between(client: ClientService, model: str, salt: int) -> dict[str, list[float]]:
    """Milliseconds between tokens of a running session, alone and while a prompt arrives."""
    running = Session(client, model, PROMPT, 2000)
    prompt = Session(client, model, long_text(salt), 1)
    alone = Session(client, model, long_text(salt + 1), 1)
    started = time.perf_counter()
    await alone.run()
    alone_s = alone.at[0] - started
    ended = asyncio.Event()
    task = asyncio.create_task(running.run(ended.is_set))
    await said(running, PLAIN_TOKENS)
    started = time.perf_counter()
    await prompt.run()
    # Before and after, for the machine drifts.
    await said(running, len(running.at) + PLAIN_TOKENS)
    ended.set()
    await task
    gaps = [(b, 1000 * (b - a)) for a, b in pairwise(running.at)]
    return {
        "prompt_tokens": [prompt.prompt_tokens],
        "without": [gap for at, gap in gaps[4:] if not started < at <= prompt.at[0]],
        "with": [gap for at, gap in gaps if started < at <= prompt.at[0]],
        "prompt alone s": [alone_s],
        "prompt beside s": [prompt.at[0] - started],
    }


async def measure(given: argparse.Namespace, directory: Path) -> None:
    """Measure and print."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(stack, SimpleNamespace(path=given.model), directory, sockets=True)
        cluster.contract = given.dtype
        for _ in range(given.hosts):
            host = await cluster.host(given.max_layers, wait=False)
            async with asyncio.timeout(LOADING_S):
                await host.service.ready.wait()
            await cluster.settled(host)
        model = cluster.hosts[0].service.model.id
        client = await cluster.client()
        await together(client, model, 2, 8)
        rates: dict[int, list[float]] = {count: [] for count in SESSIONS}
        for _ in range(given.rounds):
            for count, found in rates.items():
                found.append(await together(client, model, count, given.tokens))
        one = statistics.median(rates[1])
        for count, found in rates.items():
            median = statistics.median(found)
            spread = f"{min(found):.1f}-{max(found):.1f}"
            print(f"{count} session(s): {median:7.1f} tokens/s ({spread})  {median / one:.2f}x")
        for turn in range(given.rounds):
            seen = await between(client, model, 7 * turn)
            plain, beside = seen["without"], seen["with"]
            ratio = statistics.median(beside) / statistics.median(plain)
            print(
                f"between tokens: {statistics.median(plain):.1f} ms (max {max(plain):.1f}); while "
                f"a prompt of {seen['prompt_tokens'][0]} arrives {statistics.median(beside):.1f} "
                f"ms (max {max(beside):.1f}, {len(beside)} tokens): {ratio:.2f}x; the prompt "
                f"took {seen['prompt beside s'][0]:.2f} s, alone {seen['prompt alone s'][0]:.2f}"
            )


def main() -> None:
    """Parse, tell the conditions, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file or a directory")
    parser.add_argument("--dtype", default="bf16", choices=["fp32", "bf16", "int8", "int4"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--max-layers", type=int, default=None)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(
        f"{Path(given.model).name}, {given.dtype}, {given.hosts} host(s) in one process, "
        f"{given.tokens} tokens, {given.rounds} rounds in turns, {given.threads} thread(s), "
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(given, Path(directory)))


if __name__ == "__main__":
    main()
