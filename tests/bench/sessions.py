"""Eight generations at once through two stages, against one alone, over the sealed links.

    python -m tests.bench.sessions [--sessions 8] [--tokens 64] [--dtypes bf16 int4]

Run by hand on a quiet machine. Hosts are processes, links are as always: WebSocket and Noise. All
clients are in one process more. One alone and all together take turns; the tokens/s of all
together are over the time in which all of them run.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from diffuse_core.domain.view import GenerateRequest
from tests.bench.answers import hear
from tests.bench.report import Report, common_options, conditions, in_turns
from tests.bench.shaped_network import stages

if TYPE_CHECKING:
    from diffuse_core.services.client import ClientService

PROMPT = "The river rises in the mountains and"
GOAL = 3.5


async def together(client: ClientService, model: str, count: int, tokens: int) -> float:
    """Tokens/s of `count` generations, while all of them run."""
    asks = [
        GenerateRequest(
            model=model,
            raw=f"{PROMPT} {number}",
            max_tokens=tokens,
            ignore_eos=True,
            speculate=False,
        )
        for number in range(count)
    ]
    all_heard = await asyncio.gather(*(hear(client, ask) for ask in asks))
    begin = max(heard.at[0] for heard in all_heard)
    end = min(heard.at[-1] for heard in all_heard)
    said = sum(
        new
        for heard in all_heard
        for at, new in zip(heard.at, heard.counts, strict=True)
        if begin < at <= end
    )
    return said / (end - begin)


async def measure(given: argparse.Namespace) -> Report:
    """One and many in turns, under each contract."""
    report = Report("sessions", "tokens/s", conditions(given))
    for dtype in given.dtypes:
        made = stages(given, given.stages, proxied=False, dtype=dtype)
        async with made as (network, model), network.client() as (_, client):
            ways = {
                f"{dtype}, {count} session(s)": lambda count=count, client=client, model=model: (
                    together(client, model, count, given.tokens)
                )
                for count in (1, given.sessions)
            }
            await in_turns(report, ways, given.rounds)
        one, many = ways
        report.compare(many, one, ">=", GOAL, f"{dtype}, {given.sessions} sessions / one")
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--stages", type=int, nargs="+", default=[15, 15], help="layers of each")
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "int4"])
    common_options(parser)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
