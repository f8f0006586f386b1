"""What the client's link costs: with the ring, and with the client in the loop.

    python -m tests.bench.ring [--tokens 48] [--rounds 5] [--dtype bf16] [--stages 15 15]

Run by hand on a quiet machine. The client's links go through the seeded proxy, those between
stages as well, without delay. The client is put in the loop by switching the ring off: it grants
one token at a time, so that each waits for its word. Nothing is guessed ahead in either way.
Delays are named by round trip; ways take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.messages import Credit, OpenSession, TokensDrawn
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services.links import Link
from tests.bench.answers import hear
from tests.bench.link_proxy import ANYBODY, CLIENT
from tests.bench.link_shape import Shape
from tests.bench.report import Report, common_options, conditions, in_turns
from tests.bench.shaped_network import stages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer
    from tests.bench.shaped_network import ShapedNetwork

PROMPT = "The river rises in the mountains and"
ROUND_TRIPS_MS = (0, 25, 100, 200)
GOALS = {25: 1.5, 100: 3.0}
"""Ring on to ring off, by round trip in milliseconds."""
FAR_MS = 200
"""A round trip of 100 ms each way."""
FLAT = 0.95


@contextlib.contextmanager
def one_token_at_a_time(observer: Observer) -> Iterator[None]:
    """Let clients of this process grant each token only when they have the one before."""
    send, handlers = Link.send, observer.links._handlers
    drawn = handlers[TokensDrawn]

    async def sending(link: Link, message: Any, body: bytes | memoryview = b"") -> None:
        if isinstance(message, OpenSession):
            message = msgspec.structs.replace(message, credits=1)
        if not isinstance(message, Credit):
            await send(link, message, body)

    async def hearing(link: Link, message: TokensDrawn, body: memoryview) -> None:
        await drawn(link, message, body)
        if message.finish is None:
            await send(link, Credit(message.session, len(message.tokens)))

    Link.send = sending  # type: ignore[method-assign]
    observer.links.handle(TokensDrawn, hearing)
    try:
        yield
    finally:
        Link.send = send  # type: ignore[method-assign]
        observer.links.handle(TokensDrawn, drawn)


class Ring:
    """The ways that are measured, on one network."""

    def __init__(self, network: ShapedNetwork, model: str, tokens: int) -> None:
        self._network = network
        self._request = GenerateRequest(
            model=model, raw=PROMPT, max_tokens=tokens, ignore_eos=True, speculate=False
        )
        self.said: set[tuple[int, ...]] = set()

    async def rate(self, round_trip_ms: float, *, ring: bool) -> float:
        """Tokens/s over a client's link."""
        shape = Shape(delay_s=round_trip_ms / 2000)
        await self._network.proxy.shape(CLIENT, ANYBODY, shape)
        async with self._network.client() as (observer, client):
            how = contextlib.nullcontext() if ring else one_token_at_a_time(observer)
            with how:
                return await self._hear(client)

    async def _hear(self, client: ClientService) -> float:
        heard = await hear(client, self._request)
        self.said.add(tuple(heard.tokens))
        return heard.rate


async def measure(given: argparse.Namespace) -> Report:
    """All ways in turns."""
    report = Report("ring", "tokens/s", conditions(given))
    async with stages(given, given.stages) as (network, model):
        ring = Ring(network, model, given.tokens)
        ways = {
            f"{way}, round trip {ms} ms": lambda ms=ms, on=way == "ring": ring.rate(ms, ring=on)
            for ms in ROUND_TRIPS_MS
            for way in ("ring", "client in the loop")
        }
        await in_turns(report, ways, given.rounds)
    for ms, goal in GOALS.items():
        one, other = (f"{way}, round trip {ms} ms" for way in ("ring", "client in the loop"))
        report.compare(one, other, ">=", goal, f"ring on / off at {ms} ms round trip")
    far, near = (f"ring, round trip {ms} ms" for ms in (FAR_MS, 0))
    report.compare(far, near, ">=", FLAT, f"ring at {FAR_MS // 2} ms one way / at 0")
    same = "the same" if len(ring.said) == 1 else "NOT the same"
    report.notes.append(f"all ways said {same} tokens")
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--stages", type=int, nargs="+", default=[15, 15], help="layers of each")
    common_options(parser)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
