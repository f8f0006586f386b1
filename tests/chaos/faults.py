"""Does what the plan says, and undoes it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.link_proxy import ANYBODY
from tests.bench.link_shape import FREE, Shape
from tests.chaos.damage import damage, fill, free, small_disk
from tests.chaos.scene import READY_S, SEEN_S, Scene, root_missing
from tests.e2e.lives import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from diffuse_core.domain.view import NodeView
    from tests.bench.link_proxy import State
    from tests.chaos.fault_plan import Fault
    from tests.chaos.ledger import Ledger
    from tests.chaos.load import Probes
    from tests.e2e.lives import Life

WRONG_CLOCK = Path(__file__).with_name("wrong_clock.py")
HOURS = (-40.0, -5.0, -0.5, 0.5, 5.0, 40.0)
SLOW = Shape(delay_s=0.06, jitter_s=0.03, bytes_per_s=200_000)
LOSSY = Shape(delay_s=0.005, loss=0.05)
ADDRESS_SPACE = (300, 700, 1500, 2500)
"""MiB: python alone, torch not quite, torch only just, not every slice."""
FILES = (16, 32, 64)
REFUSALS = {2, 3, 4, 5, 6, 74}
"""Exit codes of a host that was told, or found out, that it cannot run here."""


class Faults:
    """For the nodes of one scene."""

    def __init__(self, scene: Scene, ledger: Ledger, probes: Probes) -> None:
        self._scene = scene
        self._ledger = ledger
        self._probes = probes
        self._numbers = 0

    async def do(self, fault: Fault) -> None:
        """All of one fault, its undoing included."""
        name = ""
        if fault.targets:
            name = self._spared(fault.targets)
            if not name:
                self._ledger.notes[f"{fault.kind}: nobody could be spared"] += 1
                return
        act: Callable[[str, Fault], Awaitable[None]] = getattr(self, f"_{fault.kind}")
        label = f"{fault.kind} {name}".strip()
        self._ledger.say(f"{fault.at:6.1f} s  {label}, {fault.lasts:.1f} s")
        self._ledger.faults[fault.kind] += 1
        self._ledger.begin(label)
        self._scene.struck.add(name)
        try:
            await act(name, fault)
        except AssertionError as error:
            self._ledger.violation(f"{label}: {str(error)[-600:]}")
        finally:
            self._scene.struck.discard(name)
            self._ledger.end(label)

    def _spared(self, targets: Sequence[str]) -> str:
        scene = self._scene
        running = {life.name for life in scene.running()}
        return next(
            (one for one in targets
             if one in running and one not in scene.struck and scene.can_spare(one)),
            "",
        )  # fmt: skip

    async def _back(self, name: str, within: Sequence[str] = ()) -> Life:
        """Start somebody again, and wait until everybody knows."""
        life = await self._scene.launch(name, within=within)
        took = await self._scene.until_seen_ready(life)
        if took is not None:
            self._ledger.returns.append(took)
        return life

    # --- processes ----------------------------------------------------------------------------

    async def _kill(self, name: str, fault: Fault) -> None:
        await self._scene.finish(name, signal.SIGKILL)
        await asyncio.sleep(fault.lasts)
        await self._back(name)

    async def _term(self, name: str, fault: Fault) -> None:
        await self._scene.finish(name, signal.SIGTERM)
        await asyncio.sleep(fault.lasts)
        await self._back(name)

    async def _pause(self, name: str, fault: Fault) -> None:
        await self._scene.pause(name, fault.lasts)
        await self._scene.until_seen_ready(self._scene.life(name))

    async def _clock(self, name: str, fault: Fault) -> None:
        """Its time of day is wrong for a while, and then right again."""
        shift = 3600 * random.Random(fault.salt).choice(HOURS)
        self._ledger.say(f"    the clock of {name} is wrong by {shift / 3600:+.1f} hours")
        await self._scene.finish(name, signal.SIGTERM)
        await self._back(name, (sys.executable, str(WRONG_CLOCK), f"{shift:.0f}"))
        await asyncio.sleep(fault.lasts)
        await self._scene.finish(name, signal.SIGTERM)
        await self._back(name)

    # --- links --------------------------------------------------------------------------------

    async def _cut(self, name: str, fault: Fault) -> None:
        await self._links(name, "cut", fault.lasts)

    async def _swallow(self, name: str, fault: Fault) -> None:
        await self._links(name, "swallowed", fault.lasts)

    async def _links(self, name: str, state: State, seconds: float) -> None:
        await self._scene.proxy.set_state(name, ANYBODY, state)
        await asyncio.sleep(seconds)
        await self._scene.proxy.set_state(name, ANYBODY, "up")
        await self._scene.until_seen_ready(self._scene.life(name))

    async def _slow(self, name: str, fault: Fault) -> None:
        await self._shaped(name, SLOW, fault.lasts)

    async def _lossy(self, name: str, fault: Fault) -> None:
        await self._shaped(name, LOSSY, fault.lasts)

    async def _shaped(self, name: str, shape: Shape, seconds: float) -> None:
        await self._scene.proxy.shape(name, ANYBODY, shape)
        await asyncio.sleep(seconds)
        await self._scene.proxy.shape(name, ANYBODY, FREE)

    # --- disks --------------------------------------------------------------------------------

    async def _disk(self, name: str, fault: Fault) -> None:
        """The disk with its state is full while it runs, and when it is started again."""
        if reason := root_missing():
            self._ledger.notes[f"disk: left out, {reason}"] += 1
            return
        place = self._scene.directory / name
        await self._scene.finish(name, signal.SIGTERM)
        with small_disk(place):
            await self._back(name)
            fill(place)
            await asyncio.sleep(fault.lasts)
            await self._scene.finish(name, signal.SIGKILL)
            life, code = await self._scene.try_start(name)
            if life is None and code not in REFUSALS:
                self._ledger.violation(f"{name} on a full disk ended with {code}")
            await asyncio.sleep(1.0)
            free(place)
            if life is None:
                await self._back(name)
            else:
                await self._scene.until_seen_ready(life)
            await self._scene.finish(name, signal.SIGTERM)
        await self._back(name)

    async def _rot(self, name: str, fault: Fault) -> None:
        """The file of its model is damaged while it runs; it is ended, and reads that again."""
        copy = await asyncio.to_thread(self._scene.copy_of_model, name)
        await self._scene.finish(name, signal.SIGTERM)
        life = await self._scene.launch(name, model=copy)
        await self._scene.until_seen_ready(life)
        damage(copy, fault.salt)
        await asyncio.sleep(fault.lasts)
        await self._scene.finish(name, signal.SIGKILL)
        await self._damaged(name, copy)
        await self._back(name)

    async def _corrupt(self, _name: str, fault: Fault) -> None:
        """A host comes with a damaged model of the same name."""
        name = self._newcomer("corrupt")
        copy = await asyncio.to_thread(self._scene.copy_of_model, name)
        damage(copy, fault.salt)
        await self._damaged(name, copy, fault.lasts)

    async def _damaged(self, name: str, copy: Path, seconds: float = 3.0) -> None:
        """Start a host of damaged files: it refuses, or the network tells it apart."""
        life, code = await self._scene.try_start(name, model=copy)
        if life is None:
            if code not in REFUSALS:
                self._ledger.violation(f"{name}, whose model is damaged, ended with {code}")
            return
        if await self._end_or_ready(life):
            model, node = self._scene.whole_model(), await self._known(life)
            if node is not None and model is not None and node.fingerprint == model.fingerprint:
                self._ledger.violation(f"{name} is taken for a host of the undamaged model")
            await asyncio.sleep(seconds)
            await self._scene.finish(name, signal.SIGTERM)

    async def _known(self, life: Life) -> NodeView | None:
        with contextlib.suppress(TimeoutError):
            await until(lambda: (node := self._scene.seen(life)) and node.fingerprint, SEEN_S)
        return self._scene.seen(life)

    # --- newcomers ----------------------------------------------------------------------------

    def _newcomer(self, kind: str) -> str:
        self._numbers += 1
        name = f"host-{kind}-{self._numbers}"
        self._scene.layers[name] = min(self._scene.layers.values())
        return name

    async def _join(self, _name: str, fault: Fault) -> None:
        name = self._newcomer("new")
        self._scene.struck.add(name)
        life = await self._scene.launch(name)
        await self._scene.until_seen_ready(life)
        await asyncio.sleep(fault.lasts)
        await self._scene.finish(name, signal.SIGTERM)

    async def _memory(self, _name: str, fault: Fault) -> None:
        size = random.Random(fault.salt).choice(ADDRESS_SPACE)
        await self._limited("starved", f"--as={size * 2**20}", fault)

    async def _files(self, _name: str, fault: Fault) -> None:
        count = random.Random(fault.salt).choice(FILES)
        await self._limited("few-files", f"--nofile={count}", fault)

    async def _limited(self, kind: str, limit: str, fault: Fault) -> None:
        """A host that cannot have what it needs refuses, or runs, or ends: it does not hang."""
        name = self._newcomer(kind)
        self._ledger.say(f"    {name} with {limit}")
        life, code = await self._scene.try_start(name, within=("prlimit", limit))
        if life is None:
            if code not in REFUSALS:
                self._ledger.violation(
                    f"{name} ({limit}) ended with {code}: {self._scene.tail(name)}"
                )
        elif await self._end_or_ready(life, limited=True):
            await asyncio.sleep(fault.lasts)
            await self._scene.finish(name, signal.SIGTERM)

    async def _end_or_ready(self, life: Life, *, limited: bool = False) -> bool:
        """Wait until a host of which nobody knows serves or ends; whether it still runs."""
        process = self._scene.processes.running[life.name]
        with contextlib.suppress(TimeoutError):
            await until(lambda: life.ready or process.poll() is not None, READY_S)
        if process.poll() is None:
            if not life.ready and not limited:
                self._ledger.violation(f"{life.name} neither serves nor ends")
            return True
        life.ended = time.time()
        if process.returncode not in REFUSALS:
            self._ledger.violation(
                f"{life.name} ended with {process.returncode}: {self._scene.tail(life.name)}"
            )
        return False

    # --- all holders of a range ---------------------------------------------------------------

    async def _break(self, _name: str, fault: Fault) -> None:
        """A layer is held by nobody: requests end and say so; it comes back, and they go on."""
        model = self._scene.whole_model()
        if model is None or not model.servable:
            self._ledger.notes["break: the model was not servable before"] += 1
            return
        layers = list(range(model.layers))
        random.Random(fault.salt).shuffle(layers)
        # First those that nobody holds who is to live through all of the run.
        steady = self._scene.cast.steady
        layers.sort(key=lambda layer: bool(steady.intersection(self._scene.holders(layer))))
        names = self._scene.holders(layers[0])
        self._scene.struck.update(names)
        self._ledger.say(f"    all holders of layer {layers[0]}: {names}")
        for name in names:
            await self._scene.finish(name, signal.SIGKILL)
        await self._probes.broken(fault.lasts)
        back = asyncio.gather(*(self._back(name) for name in names))
        took = await self._scene.until_servable(READY_S)
        await back
        if took is None:
            self._ledger.violation("the model is not servable though its hosts are back")
        else:
            self._ledger.servable_after.append(took)
            await self._probes.healed()
        self._scene.struck.difference_update(names)
