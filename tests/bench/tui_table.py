"""What the replica table costs: an update, a key in the filter, a move of the cursor.

Run by hand: `python tests/bench/tui_table.py [NODES ...]`. Every figure is the median and the
largest of many turns in milliseconds of CPU (what else runs on the machine is not in it), in the
running app at 200 x 60, until the strips of the whole screen are made.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

import msgspec
from tui_driver import running, until
from tui_fakes import Node, network, node

from diffuse_tui.presenter.columns import Sort
from diffuse_tui.presenter.history import NodeHistory
from diffuse_tui.widgets.replica_table import ReplicaPanel, ReplicaTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

    from diffuse_core.domain.view import NetworkView

TURNS = 40


def view(count: int, turn: int) -> NetworkView:
    """`count` hosts of which all figures change with every turn."""
    draw = random.Random(turn)
    hosts = [
        node(
            number,
            (number % 40, number % 40 + 10),
            tokens_per_s=draw.random() * 30,
            sessions=draw.randrange(8),
            kv_used=draw.randrange(2**30),
            kv_budget=2**30,
            rtt_s=draw.random() / 5,
            last_seen_s=draw.random() * 9,
            liveness="suspect" if draw.random() < 0.02 else "alive",
        )
        for number in range(count)
    ]
    return msgspec.structs.replace(network(*hosts, layers=50), taken_at=float(turn))


def paint(pilot: Pilot[None]) -> None:
    """Make the strips of the screen, as a refresh does before they are written."""
    pilot.app.screen._compositor.render_strips()


def measured(turns: int, work: Callable[[int], None], pilot: Pilot[None]) -> list[float]:
    """Milliseconds that each turn of `work` and the painting after it took."""
    took = []
    work(0)
    paint(pilot)  # What had piled up before belongs to nobody's turn.
    for turn in range(turns):
        start = time.process_time()
        work(turn)
        paint(pilot)
        took.append((time.process_time() - start) * 1000)
    return took


async def measure(count: int) -> None:
    """Print a line for each kind of work."""
    there = Node()
    async with running(there, (200, 60)) as pilot:
        views = [view(count, turn) for turn in range(TURNS)]
        there.first.show(views[0])
        table = pilot.app.query_one(ReplicaTable)
        await until(pilot, lambda: len(table.keys) == count)
        panel, history = pilot.app.query_one(ReplicaPanel), NodeHistory()
        model = views[0].models[0]
        gc.collect()
        gc.freeze()  # As the launched app does, once it has settled.

        def update(turn: int) -> None:
            history.note(views[turn])
            panel.show_view(views[turn], model, history)

        tell(count, "update and paint", measured(TURNS, update, pilot))
        table.sort = Sort("tok/s", falling=True)
        tell(count, "the same, sorted by tokens/s", measured(TURNS, update, pilot))
        tell(
            count, "cursor down and paint", measured(TURNS, lambda _: table.action_step(1), pilot)
        )
        table.focus()
        await pilot.press("slash")
        words = "layer:14 !suspect 0000"
        keys = []
        for key in words:
            start = time.process_time()
            await pilot.press({" ": "space", ":": "colon", "!": "exclamation_mark"}.get(key, key))
            paint(pilot)
            keys.append((time.process_time() - start) * 1000)
        tell(count, "key in the filter, whole way", keys)
        tell(count, "update under a filter", measured(TURNS, update, pilot))


def tell(count: int, what: str, took: list[float]) -> None:
    """One line of the table."""
    print(f"{count:>6}  {what:<30} {statistics.median(took):>8.1f} {max(took):>8.1f}")


async def main(counts: list[int]) -> None:
    """Measure each size in turn."""
    print(f"{'nodes':>6}  {'work':<30} {'median':>8} {'largest':>8}  ms")
    for count in counts:
        await measure(count)


if __name__ == "__main__":
    asyncio.run(main([int(text) for text in sys.argv[1:]] or [50, 1000]))
