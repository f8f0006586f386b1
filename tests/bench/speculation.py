"""What guessing tokens ahead brings: on text that is copied, and on text without repeats.

    python -m tests.bench.speculation [--tokens 96] [--rounds 3] [--dtype bf16] [--apart 0 40]

Run by hand on a quiet machine. Links between stages go through the seeded proxy, with so many
milliseconds each way. The same request is asked with and without guessing, in turns, and must say
the same. What is copied is drawn greedily, what is not with temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import GenerateRequest
from tests.bench.answers import hear
from tests.bench.link_shape import Shape
from tests.bench.report import Report, common_options, conditions, in_turns
from tests.bench.shaped_network import stages
from tests.bench.texts import COPY, FRESH

if TYPE_CHECKING:
    from diffuse_core.services.client import ClientService
    from tests.bench.link_process import ProxyProcess

TEXTS = {
    "copy": (COPY, SamplingParams()),
    "fresh": (FRESH, SamplingParams(temperature=1.0, seed=7)),
}
GOALS = {("fresh", 0): 0.97, ("fresh", 40): 0.97, ("copy", 40): 2.0}
"""With to without, by text and milliseconds between stages."""


class Guessing:
    """Asks for both texts, with and without guessing."""

    def __init__(self, proxy: ProxyProcess, client: ClientService, model: str) -> None:
        self._proxy = proxy
        self._client = client
        self._model = model
        self.said: dict[str, set[tuple[int, ...]]] = {}

    async def rate(
        self, text: str, apart_ms: float, tokens: int, hosts: int, *, guess: bool
    ) -> float:
        """Tokens/s after the first ones."""
        shape = Shape(delay_s=apart_ms / 1000)
        for one, other in itertools.combinations(range(hosts), 2):
            await self._proxy.shape(f"host-{one}", f"host-{other}", shape)
        prompt, sampling = TEXTS[text]
        ask = GenerateRequest(
            model=self._model,
            raw=prompt,
            max_tokens=tokens,
            sampling=sampling,
            ignore_eos=True,
            speculate=guess,
        )
        heard = await hear(self._client, ask)
        self.said.setdefault(text, set()).add(tuple(heard.tokens))
        return heard.rate


def repeated(tokens: tuple[int, ...]) -> float:
    """The share of pairs of neighbours that were there before."""
    pairs = list(itertools.pairwise(tokens))
    return 1 - len(set(pairs)) / max(1, len(pairs))


def name(text: str, apart_ms: int, *, guess: bool) -> str:
    return f"{text}, {apart_ms} ms apart, {'guessing' if guess else 'not guessing'}"


async def measure(given: argparse.Namespace) -> Report:
    """All ways in turns."""
    report = Report("speculation", "tokens/s", conditions(given))
    cases = list(itertools.product(TEXTS, given.apart))
    async with stages(given, given.stages) as (network, model), network.client() as (_, client):
        guessing = Guessing(network.proxy, client, model)
        hosts = len(given.stages)
        ways = {
            name(text, apart, guess=guess): lambda text=text, apart=apart, guess=guess: (
                guessing.rate(text, apart, given.tokens, hosts, guess=guess)
            )
            for text, apart in cases
            for guess in (True, False)
        }
        await in_turns(report, ways, given.rounds)
    for text, apart in cases:
        on, off = (name(text, apart, guess=guess) for guess in (True, False))
        goal = GOALS.get((text, apart), 0.0)
        report.compare(on, off, ">=", goal, f"{text}, {apart} ms apart: guessing / not")
    for text, said in guessing.said.items():
        share = repeated(next(iter(said)))
        report.notes.append(f"{text}: {share:.0%} of pairs of tokens were said before")
        assert len(said) == 1, f"guessing changed the text {text}: {said}"
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--stages", type=int, nargs="+", default=[15, 15], help="layers of each")
    parser.add_argument("--apart", type=int, nargs="+", default=[0, 40], metavar="MS")
    common_options(parser, rounds=3)
    given = parser.parse_args()
    asyncio.run(measure(given)).print(as_json=given.json)


if __name__ == "__main__":
    main()
