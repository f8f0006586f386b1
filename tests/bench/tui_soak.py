"""Whether the app grows: hours of updates, answers and screens, as fast as it takes them. By hand.

    python tests/bench/tui_soak.py [--updates 7200] [--nodes 50]

7,200 updates are what two hours bring. Nodes come and go all along (an id is never seen again),
every 60th update a question is asked and answered with 60 lines of Markdown, every 30th one of the
screens is opened and closed, every 300th a new conversation begun. What is bounded (turns that are
shown, events, the history of figures) is filled to its bound before the first mark. Printed after
each tenth: memory of the process, and how many objects there are; what grew in the second half,
and which objects did. The caches that Textual keeps of what it drew are full after 2,000 updates
or so: in shorter runs they are still filling in the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]

import tui_literal
from tui_driver import until

from diffuse_core.domain.view import Event, FeedUpdate
from diffuse_tui.app import DiffuseApp
from diffuse_tui.launch import settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

FILLED = 70
"""Turns and more than are shown at once."""

SCREENS = ("f1", "f5", "f6", "f7", "f8", "f9")


class Endless(tui_literal.LiteralAttachment):
    """Gives as many pictures as are taken; a tenth of the nodes are others each minute."""

    def __init__(self, nodes: int) -> None:
        super().__init__(tui_literal.robust(), tui_literal.ANSWER * 3)
        self._next: asyncio.Queue[None] = asyncio.Queue(1)
        self._numbers = itertools.count(nodes + 1)
        self._hosts = list(range(1, nodes + 1))
        self._rng = random.Random(1)
        self.given = 0

    async def more(self) -> None:
        """Let one more picture come."""
        await self._next.put(None)

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        """Pictures, each when it is asked for."""
        while True:
            await self._next.get()
            if self.given % 6 == 0:
                gone = self._rng.randrange(1, len(self._hosts))
                self._hosts[gone] = next(self._numbers)
            nodes = [
                tui_literal.host(
                    number,
                    (10 * (number % 3), 10 * (number % 3) + 10),
                    me=number == 1,
                    sessions=self._rng.randrange(5),
                    tokens_per_s=self._rng.random() * 40,
                )
                for number in self._hosts
            ]
            at = tui_literal.NOW + self.given
            view = msgspec.structs.replace(tui_literal.view_of(nodes), taken_at=at)
            self.given += 1
            event = Event(at, "info", f"node {self.given} was seen")
            yield FeedUpdate(view=view, telemetry=tui_literal.TELEMETRY, events=(event,))


class Mark(NamedTuple):
    """MiB of the process; its objects by type."""

    memory: float
    objects: Counter[str]


def _mark() -> Mark:
    gc.collect()
    objects = Counter(type(each).__qualname__ for each in gc.get_objects())
    return Mark(psutil.Process().memory_info().rss / 2**20, objects)


async def _ask(pilot: Pilot[None]) -> None:
    pane = pilot.app.screen_stack[0].query_one("#chat")
    await pilot.press("f3", "a", "enter")
    await until(pilot, lambda: not pane.busy)


async def _look_round(pilot: Pilot[None], key: str) -> None:
    await pilot.press(key)
    await pilot.pause()
    while len(pilot.app.screen_stack) > 1:
        await pilot.app.pop_screen()
    await pilot.pause()


async def soak(updates: int, nodes: int, place: Path) -> None:
    """Run it and print how memory goes."""
    there = Endless(nodes)

    async def attach() -> Endless:
        return there

    app = DiffuseApp(attach, history=place / "chats.db")
    marks: list[Mark] = []
    async with app.run_test(size=(120, 40)) as pilot:
        await there.more()
        await pilot.pause()
        for _ in range(FILLED):
            await _ask(pilot)
        settle()
        begun = time.process_time()
        for number in range(updates):
            await there.more()
            if number % 4 == 0:
                await pilot.pause()
            if number % 60 == 59:
                await _ask(pilot)
            if number % 30 == 29:
                await _look_round(pilot, SCREENS[number // 30 % len(SCREENS)])
            if number % 300 == 299:
                await pilot.press("f3", "ctrl+n")
            if (number + 1) % max(1, updates // 10) == 0:
                marks.append(_mark())
                memory, objects = marks[-1]
                print(
                    f"{number + 1:6} updates: {memory:.1f} MiB, {objects.total()} objects",
                    flush=True,
                )
        spent = time.process_time() - begun
    half = marks[len(marks) // 2 - 1]
    grown = marks[-1].objects - half.objects
    print(
        f"{1000 * spent / updates:.1f} ms of CPU for an update of {nodes} nodes with all that is "
        f"done between; in the second half {marks[-1].memory - half.memory:+.1f} MiB, of objects "
        + ", ".join(f"{name} +{count}" for name, count in grown.most_common(12))
    )


def main() -> None:
    """Soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=7200)
    parser.add_argument("--nodes", type=int, default=50)
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(soak(given.updates, given.nodes, Path(place)))


if __name__ == "__main__":
    main()
