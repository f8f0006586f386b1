"""A run from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tests.bench.link_process import proxy_process
from tests.chaos.api import Programs
from tests.chaos.bystander import Bystander, bystander
from tests.chaos.clients import App, Queries, StayingClient
from tests.chaos.fault_plan import Cast, Fault, digest, draw_faults
from tests.chaos.faults import Faults
from tests.chaos.judge import grows, is_late, left_over, piled_up, said_in_log
from tests.chaos.ledger import Ledger
from tests.chaos.load import DEADLINE_S, Load, Probes
from tests.chaos.load_plan import first_asks
from tests.chaos.report import table
from tests.chaos.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from diffuse_core.domain.view import Telemetry
    from tests.bench.link_process import ProxyProcess
    from tests.chaos.fault_plan import Kind
    from tests.chaos.questions import RightAnswers
    from tests.e2e.lives import Life

REST_WAIT_S = 60.0
"""In which a network that is asked nothing forgets all sessions; waits of hosts end in half."""
CLIENTS = ("client", "client", "client", "app", "app", "query", "query", "api", "api", "api")
AT_ONCE = 3
SERVABLE_S = 240.0


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    seed: int
    seconds: float
    hosts: int
    layers: int
    kinds: tuple[Kind, ...]
    clients: tuple[str, ...] = CLIENTS

    @property
    def cast(self) -> Cast:
        """Who takes part: the last host cannot be dialled, and is met through the sentinels."""
        hosts = tuple(f"host-{number}" for number in range(self.hosts))
        sentinels = ("sentinel-a", "sentinel-b")
        return Cast(
            hosts,
            sentinels,
            ("node-0", "serve-0"),
            frozenset((*hosts[:-1], *sentinels)),
            frozenset((hosts[0], sentinels[0])),
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The plan."""
        return draw_faults(self.seed, self.cast, self.seconds, self.kinds)

    @property
    def digest(self) -> str:
        """What two runs have in common that do the same."""
        return digest(self, self.faults, first_asks(self.seed, self.clients))


class Story:
    """One run in a directory."""

    def __init__(self, directory: Path, options: Options, answers: RightAnswers) -> None:
        self.options = options
        self.ledger = Ledger(options.seed)
        self._directory = directory
        self._answers = answers
        self._rested: dict[int, Telemetry] = {}
        self._lives: list[Life] = []
        self._machine = Bystander()
        self._began = time.monotonic()

    @property
    def table(self) -> str:
        """The figures so far, for people."""
        return table(self.ledger, self._lives, self._machine, time.monotonic() - self._began)

    async def run(self) -> None:
        """All of it. Look at `ledger.violations` afterwards."""
        terminal = _terminal()
        await self._answers.learn()
        async with contextlib.AsyncExitStack() as stack:
            self._machine = await stack.enter_async_context(bystander())
            proxy = await stack.enter_async_context(proxy_process(self.options.seed))
            scene = await stack.enter_async_context(self._scene(proxy))
            self._lives = scene.lives
            await self._begin(scene)
            self._began = time.monotonic()
            async with scene.observed():
                await self._until_whole(scene)
                await self._middle(scene)
            await scene.end_all()
            self._judge(scene)
        self._after(scene)
        if _terminal() != terminal:
            self.ledger.violation("the terminal is not as it was")

    # --- the start ----------------------------------------------------------------------------

    def _scene(self, proxy: ProxyProcess) -> Scene:
        cast, layers = self.options.cast, self.options.layers
        # Different slices, none of them all of the model; together it is held three times.
        sizes = {
            name: round(layers * (0.4, 0.5, 0.6)[(number + self.options.seed) % 3])
            for number, name in enumerate(cast.hosts)
        }
        return Scene(self._directory, self._answers.path, cast, proxy, self.ledger, sizes)

    async def _begin(self, scene: Scene) -> None:
        cast = scene.cast
        for name in cast.sentinels:
            await scene.launch(name)
        await asyncio.gather(*(scene.launch(name) for name in cast.others))
        for at in range(0, len(cast.hosts), AT_ONCE):
            lives = await asyncio.gather(
                *(scene.launch(name) for name in cast.hosts[at : at + AT_ONCE])
            )
            for life in lives:
                await scene.until_ready(life)
        self.ledger.say(f"{len(scene.lives)} nodes run")

    async def _until_whole(self, scene: Scene) -> None:
        if await scene.until_servable(SERVABLE_S) is None:
            raise AssertionError(f"not servable: {scene.view()}")

    # --- the middle ---------------------------------------------------------------------------

    async def _middle(self, scene: Scene) -> None:
        queries = Queries(scene, self._answers)
        faults = Faults(scene, self.ledger, Probes(queries, self._answers, self.ledger))
        kinds: dict[str, Any] = {
            "client": StayingClient(scene, self._answers),
            "app": App(scene, self._answers, scene.cast.others[0]),
            "query": queries,
            "api": Programs(scene, self._answers, scene.cast.others[1]),
        }
        askers = [kinds[name] for name in self.options.clients]
        async with Load(askers, self._answers, self.ledger, self.options.seed) as load:
            await self._strike(scene, load, faults)
            await self._rest(scene, load)

    async def _strike(self, scene: Scene, load: Load, faults: Faults) -> None:
        start = began = time.monotonic()
        under_way: set[asyncio.Task[None]] = set()
        try:
            for fault in self.options.faults:
                until = min(start + fault.at, began + self.options.seconds)
                await asyncio.sleep(max(0.0, until - time.monotonic()))
                # Where those who were struck took long to come back, the rest comes later, in
                # its order and at its distances: not all at once.
                start = max(start, time.monotonic() - fault.at)
                load.check()
                if time.monotonic() - began >= self.options.seconds:
                    self.ledger.notes["faults for which no time was left"] += 1
                    continue
                if fault.kind in ("break", "rest"):
                    await _all_of(under_way)
                if fault.kind == "rest":
                    await self._rest(scene, load)
                    load.go_on()
                elif fault.kind == "break":
                    await faults.do(fault)
                else:
                    task = asyncio.create_task(faults.do(fault))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
            await asyncio.sleep(max(0.0, began + self.options.seconds - time.monotonic()))
            await _all_of(under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _rest(self, scene: Scene, load: Load) -> None:
        """Nothing is asked: then nothing is held, and nothing has piled up."""
        self.ledger.say("rest")
        try:
            async with asyncio.timeout(DEADLINE_S + 10):
                await load.rest()
        except TimeoutError:
            self.ledger.violation("clients do not come to an end")
        began, found = time.time(), ["nothing was told"]
        while found and time.time() < began + REST_WAIT_S:
            await asyncio.sleep(0.5)
            found = self._at_rest(scene, began + 1.0)
        for text in found:
            self.ledger.violation(text)
        for life in scene.running():
            if life.samples:
                self._rested.setdefault(life.pid, life.samples[-1][1])
        self.ledger.say(f"at rest after {time.time() - began:.1f} s")

    def _at_rest(self, scene: Scene, since: float) -> list[str]:
        found = []
        for life in scene.running():
            if not life.samples or life.samples[-1][0] < since:
                found.append(f"{life.name} tells nothing")
                continue
            told = life.samples[-1][1]
            if text := left_over(life.name, told):
                found.append(text)
            before = self._rested.get(life.pid)
            found += piled_up(life.name, before, told, len(scene.running()))
        return found

    # --- the end ------------------------------------------------------------------------------

    def _judge(self, scene: Scene) -> None:
        for life in scene.lives:
            for text in (grows(life), is_late(life, self._machine.limit_at)):
                if text:
                    self.ledger.violation(text)
        if not self.ledger.heard(sorted(set(self.options.clients))):
            self.ledger.violation(f"a kind of client got no answer: {self.ledger.counts}")
        for name in {life.name for life in scene.lives}:
            for text in said_in_log(name, scene.processes.log(name)):
                self.ledger.violation(text)

    def _after(self, scene: Scene) -> None:
        """What is left when all have ended."""
        for text in scene.left_over():
            self.ledger.violation(f"a process is left: {text}")
        for name in scene.locked():
            self.ledger.violation(f"{name} is told to run still")
        ports = {int(life.address.rpartition(":")[2]) for life in scene.lives}
        busy = [one for one in psutil.net_connections("tcp") if one.status == "LISTEN"]
        for one in busy:
            if one.laddr.port in ports and one.pid is None:
                self.ledger.violation(f"port {one.laddr.port} is still listened at")


async def _all_of(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.gather(*tasks)


def _terminal() -> Sequence[Any] | None:
    """How the terminal is set; None when there is none."""
    try:
        import termios

        return termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError, termios.error):
        return None
