"""Strikes stages of running answers, and compares every answer with the undisturbed one.

    python -m tests.e2e.kill_stages --kills 200 --seed 1 [--model smol.gguf --dtype bf16]

Hosts are processes that are only reached through the link proxy: three slices, each held by two
or three of them. Whoever is struck by SIGKILL is started again, whoever was stopped goes on, links
are mended. A stall is how much longer an answer let wait, for its first token or for another, than
the same answer did when nobody was struck. Ends with 1 when an answer was not the same, or a host
was left with something of a session.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import DiffuseError
from tests.bench.answers import Heard, hear
from tests.bench.link_proxy import ANYBODY
from tests.bench.link_shape import Shape
from tests.bench.shaped_network import shaped_network
from tests.bench.texts import long_prompt
from tests.e2e.kill_plan import LENGTHS, draw_strikes
from tests.e2e.kill_report import KillReport, Outcome
from tests.e2e.recovery import Recovery
from tests.e2e.route_watch import watching_routes
from tests.services.tiny_model import LAYERS, make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from diffuse_core.services.client import ClientService
    from tests.bench.shaped_network import ShapedNetwork
    from tests.e2e.kill_plan import Kind, Strike
    from tests.e2e.route_watch import RouteWatch

CONTEXT = 2048
STAGES = 3
ANSWER_S = 90.0
LEARN = 3
"""How often each answer is heard undisturbed."""
LINKS = Shape(delay_s=0.002)
"""Of all links: answers last long enough to be struck in the middle."""

Case = tuple[int, bool]
"""Tokens of a prompt, and whether the answer is sampled."""


class KillStages:
    """The strikes of one run, on a network that is there."""

    def __init__(
        self, network: ShapedNetwork, recovery: Recovery, model: str, tokens: int, *, tiny: bool
    ) -> None:
        self._network = network
        self._recovery = recovery
        self._model = model
        self._tokens = tokens
        self._tiny = tiny
        self._usual: dict[Case, Heard] = {}

    def request(self, case: Case) -> GenerateRequest:
        """What is asked."""
        length, sampled = case
        sampling = SamplingParams(temperature=1.0, seed=length) if sampled else SamplingParams()
        return GenerateRequest(
            model=self._model,
            raw=words(length) if self._tiny else long_prompt(length, length),
            max_tokens=self._tokens,
            sampling=sampling,
            ignore_eos=True,
        )

    async def learn(self, cases: Sequence[Case]) -> None:
        """What is said when nobody is struck, and how long it takes."""
        for case in cases:
            runs = []
            for _ in range(LEARN):
                async with self._network.client() as (_, client):
                    runs.append(await hear(client, self.request(case)))
            assert len({tuple(run.tokens) for run in runs}) == 1, f"{case} is not the same again"
            # That which the machine's other work disturbed least.
            self._usual[case] = min(runs, key=lambda run: max(run.first_s, *run.gaps))

    async def strike(self, strike: Strike) -> Outcome:
        """One answer, and what is done to it."""
        await self._recovery.until_safe()
        usual = self._usual[strike.length, strike.sampled]
        heard, problem = Heard(0.0), ""
        struck: dict[str, Kind] = {}
        with watching_routes() as watch:
            async with self._network.client() as (_, client):
                blows = asyncio.create_task(self._blows(strike, watch, heard, usual, struck))
                try:
                    problem = await self._answer(client, strike, heard)
                finally:
                    blows.cancel()
                    await asyncio.wait([blows])
                    await self._recovery.mend()
        if not blows.cancelled():
            blows.result()
        identical = not problem and heard.tokens == usual.tokens
        stall = None if problem else stall_of(heard, usual)
        nodes = {self._network.nodes[name] for name in struck}
        return Outcome(
            strike,
            tuple(struck.items()),
            identical,
            stall,
            how_it_healed(heard),
            problem,
            tuple(wronged(heard, nodes)),
        )

    async def _answer(self, client: ClientService, strike: Strike, heard: Heard) -> str:
        """Listen to the end; what went wrong."""
        heard.began = time.perf_counter()
        try:
            async with asyncio.timeout(ANSWER_S):
                await hear(client, self.request((strike.length, strike.sampled)), heard=heard)
        except DiffuseError as error:
            return f"{type(error).__name__}: {error} (after {len(heard.tokens)} tokens)"
        except TimeoutError:
            return f"no end after {ANSWER_S:.0f} s and {len(heard.tokens)} tokens"
        return ""

    async def _blows(
        self,
        strike: Strike,
        watch: RouteWatch,
        heard: Heard,
        usual: Heard,
        struck: dict[str, Kind],
    ) -> None:
        """Wait for the moment, and strike."""
        await watch.fed.wait()
        if strike.moment == "prefill":
            await asyncio.sleep(strike.at * usual.first_s)
        else:
            enough = max(1, strike.at * len(usual.tokens))
            while len(heard.tokens) < enough:  # noqa: ASYNC110  (tokens tell nobody)
                await asyncio.sleep(0.001)
        for blow in strike.blows:
            await asyncio.sleep(blow.after_s)
            first = int(blow.stage * len(watch.route))
            # Of two blows the second does not strike who is down, but the next one.
            for hop in (*watch.route[first:], *watch.route[:first]):
                name = self._network.name_of(bytes(hop.node).hex())
                if name not in struck and self._recovery.may_strike(name):
                    struck[name] = blow.kind
                    await self._recovery.strike(name, blow.kind)
                    break


def stall_of(heard: Heard, usual: Heard) -> float:
    """Seconds that the first token, or another, came later than usual."""
    return max(heard.first_s - usual.first_s, max(heard.gaps) - max(usual.gaps))


def wronged(heard: Heard, struck: Collection[str]) -> Iterator[str]:
    """Hosts that nobody struck, and that were accused or replaced; so they computed in vain."""
    before = heard.route
    for one in heard.healed:
        if one.lost.node not in struck:
            yield f"{one.lost.node[:8]} was told to be lost"
        places = {(step.node, step.slice) for step in one.route}
        for step in before:
            if step.node not in struck and (step.node, step.slice) not in places:
                yield f"{step.node[:8]} lost its place ({step.slice})"
        before = one.route


def how_it_healed(heard: Heard) -> tuple[str, ...]:
    """Who was lost and who took the place, in words."""
    if heard.healed:
        return tuple(
            f"lost {one.lost.node[:8]} {one.lost.slice} ({one.why}); on with "
            f"{', '.join(step.node[:8] for step in one.replaced_by)} after {one.seconds:.2f} s"
            for one in heard.healed
        )
    return heard.finished.events if heard.finished is not None else ()


def say(text: object) -> None:
    """A line of the story, at once."""
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
    sys.stderr.flush()


async def kill_stages(
    directory: Path, given: argparse.Namespace, lengths: Sequence[int] = LENGTHS
) -> KillReport:
    """Run one in `directory`; look at `problems` of what comes back."""
    tiny = given.model == "tiny"
    layers, path = (LAYERS, directory / "tiny") if tiny else (given.layers, given.model)
    if tiny:
        await asyncio.to_thread(make_tiny_model, path, CONTEXT)
    options = ("--dtype", given.dtype, "--threads", "1", "--device", "cpu")
    most = ("--max-layers", str(-(-layers // STAGES)))
    conditions = (
        f"{Path(given.model).name}, {given.dtype}, {STAGES} slices, {given.replicas} replicas, "
        f"{given.tokens} tokens, seed {given.seed}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    report = KillReport(given.seed, conditions)
    async with shaped_network(directory, str(path), *options, seed=given.seed) as network:
        await network.proxy.shape(ANYBODY, ANYBODY, LINKS)
        names = [f"host-{number}" for number in range(STAGES * given.replicas)]
        for at in range(0, len(names), STAGES):
            group = names[at : at + STAGES]
            await asyncio.gather(*(network.add_host(name, *most) for name in group))
            await network.until_servable(at + len(group), replicas=0)
        model = await network.until_servable(len(names), replicas=2)
        async with Recovery(network, names, most) as recovery:
            await strike_all(network, recovery, model.id, given, lengths, report)
            report.left_over = await recovery.left_over()
    return report


async def strike_all(
    network: ShapedNetwork,
    recovery: Recovery,
    model: str,
    given: argparse.Namespace,
    lengths: Sequence[int],
    report: KillReport,
) -> None:
    """All strikes that the seed draws, one answer after the other."""
    run = KillStages(network, recovery, model, given.tokens, tiny=given.model == "tiny")
    await run.learn([(length, sampled) for length in lengths for sampled in (False, True)])
    say(f"{report.conditions}; the undisturbed answers are known")
    for strike in draw_strikes(given.seed, given.kills, lengths):
        outcome = await run.strike(strike)
        report.outcomes.append(outcome)
        say(outcome)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="tiny", help="`tiny` is made; or a GGUF, a directory")
    parser.add_argument("--layers", type=int, default=30, help="of a model that is not `tiny`")
    parser.add_argument("--dtype", default="fp32", choices=["fp32", "bf16", "int8", "int4"])
    parser.add_argument("--replicas", type=int, default=3, choices=[2, 3])
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main() -> int:
    """Run it as a command."""
    given = options()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kill-"))
        os.environ["DIFFUSE_CACHE_DIR"] = f"{directory}/cache"
        report = asyncio.run(kill_stages(Path(directory), given))
    click.echo(json.dumps(report.plain(), indent=1) if given.json else report.text())
    return bool(report.problems)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
