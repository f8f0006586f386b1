"""Time to the first token of a long prompt: two stages on a core each, against one process on one.

    python -m tests.bench.prefill [--tokens 1500] [--rounds 5] [--dtype bf16] [--cores 0 1]

Run by hand on a quiet machine. Each process computes with one thread, pinned to a core; client
and sentinels are on any. The ways take turns; each prompt is another one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from diffuse_core.domain.view import GenerateRequest
from tests.bench.answers import hear
from tests.bench.report import Report, common_options, conditions, in_turns
from tests.bench.shaped_network import stages
from tests.bench.texts import long_prompt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.services.client import ClientService

GOAL = 0.65


class Prefill:
    """Asks for one token after long prompts."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._salts = itertools.count()
        self.lengths: set[int] = set()

    async def first_s(self, client: ClientService, model: str) -> float:
        """Seconds to the first token."""
        prompt = long_prompt(self._tokens, next(self._salts))
        ask = GenerateRequest(model=model, raw=prompt, max_tokens=1, ignore_eos=True)
        heard = await hear(client, ask)
        self.lengths.add(heard.prompt_tokens)
        return heard.first_s


async def measure(given: argparse.Namespace) -> Report:
    """Both ways in turns."""
    report = Report("prefill", "s to the first token", conditions(given))
    prefill = Prefill(given.tokens)
    ways: dict[str, Callable[[], Awaitable[float]]] = {}
    splits = {"one process, one core": [given.layers]}
    half = -(-given.layers // 2)
    splits["two stages, a core each"] = [half, given.layers - half]
    async with AsyncExitStack() as stack:
        for way, layers in splits.items():
            pins = [[core] for core in given.cores[: len(layers)]]
            made = stages(given, layers, *pins, proxied=False)
            network, model = await stack.enter_async_context(made)
            _, client = await stack.enter_async_context(network.client())
            ways[way] = lambda c=client, m=model: prefill.first_s(c, m)
        await in_turns(report, ways, given.rounds)
    whole, split = ways
    report.compare(split, whole, "<=", GOAL, "two stages / one process")
    report.notes.append(f"prompts of {sorted(prefill.lengths)} tokens")
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--layers", type=int, default=30, help="of the model")
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1])
    common_options(parser)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
