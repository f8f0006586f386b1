"""What long answers cost the app: run by hand, `python tests/bench/tui_stream.py`.

Streams answers at 50 tokens/s into the real app over a fake node and tells, for each kind of
answer, the share of a core, the longest stretch of CPU time without the event loop coming round
(what a key would have to wait for; the wall clock tells more where the machine is busy with
other things), and how long a key takes from being sent to being painted, while it streams.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

from textual.events import Key
from tui_driver import ask, idle, ready, running, until
from tui_fakes import Node, finished

from diffuse_core.domain.view import TextDelta
from diffuse_tui.launch import settle
from diffuse_tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.pilot import Pilot

RATE = 50.0
TICK_S = 0.004
TOKEN = 4
"""Characters of a token, about."""

_SENTENCE = (
    "The **river** rises in the hills, where `rain()` falls *most* of the year, and runs past "
    "the old [mill](https://example.org/mill) to the sea. "
)
TEXTS = {
    "prose": "\n\n".join(f"{_SENTENCE * 4}" for _ in range(20)),
    "code": "Here it is:\n\n```python\n"
    + "\n".join(f'    value_{n} = compute("{n}", {n})  # step {n}' for n in range(300))
    + "\n```\n\nThat is all.",
    "bullets": "Seventy things:\n\n"
    + "\n".join(f"- **Thing {n}**: {_SENTENCE}" for n in range(70)),
    "table": "| Name | Number | Remark |\n|---|---:|---|\n"
    + "\n".join(f"| thing {n} | {n} | some `remark` on it, not too short |" for n in range(120)),
}


class Cost(NamedTuple):
    """Share of a core 0..1; milliseconds."""

    core: float
    stall_cpu_ms: float
    stall_wall_ms: float
    keys_ms: list[float]


def tokens(text: str, limit: int) -> Iterator[str]:
    """Pieces of `text`, of about a token each."""
    for start in range(0, min(len(text), limit * TOKEN), TOKEN):
        yield text[start : start + TOKEN]


async def watch(stalls: list[tuple[float, float]]) -> None:
    """Note CPU and wall time between two turns of the event loop, beyond the tick's own."""
    while True:
        cpu, wall = time.thread_time(), time.perf_counter()
        await asyncio.sleep(TICK_S)
        stalls.append((time.thread_time() - cpu, time.perf_counter() - wall - TICK_S))


async def key_to_paint(pilot: Pilot[None], letter: str) -> float:
    """Seconds until a typed letter is in the frame; typed where answers stream as well."""
    prompt = pilot.app.query_one(Prompt)
    began = time.perf_counter()
    before = prompt.text
    painted = asyncio.Event()
    await pilot._wait_for_screen()
    began = time.perf_counter()
    pilot.app.post_message(Key(letter, letter))
    while prompt.text == before:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    pilot.app.call_after_refresh(painted.set)
    await painted.wait()
    return time.perf_counter() - began


async def cost(pilot: Pilot[None], fake: object, text: str, limit: int, kept: int) -> Cost:
    for number in range(kept):
        await ask(pilot, fake, f"Before {number}")
        events = fake.generations[-1].events
        events.put_nowait(TextDelta(text))
        events.put_nowait(finished())
        events.put_nowait(None)
        await until(pilot, idle(pilot))
    await ask(pilot, fake, "Tell me")
    generation = fake.generations[-1]
    stalls: list[tuple[float, float]] = []
    keys: list[float] = []
    watcher = asyncio.create_task(watch(stalls))
    cpu, wall = time.process_time(), time.perf_counter()
    due = wall
    for number, piece in enumerate(tokens(text, limit)):
        generation.events.put_nowait(TextDelta(piece))
        if number % 50 == 25:
            keys.append(await key_to_paint(pilot, "x"))
        due += 1 / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    used = (time.process_time() - cpu) / (time.perf_counter() - wall)
    generation.events.put_nowait(finished())
    generation.events.put_nowait(None)
    await until(pilot, idle(pilot))
    await pilot.pause()
    watcher.cancel()
    with suppress(asyncio.CancelledError):
        await watcher
    return Cost(
        used,
        1000 * max(cpu for cpu, _ in stalls),
        1000 * max(wall for _, wall in stalls),
        sorted(1000 * each for each in keys),
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--kept", type=int, default=0, help="answers of the same kind before it")
    parser.add_argument("--only", choices=tuple(TEXTS))
    chosen = parser.parse_args()
    print("kind      core  stall CPU ms  stall wall ms  key ms p50  max")
    for kind, text in TEXTS.items():
        if chosen.only in (None, kind):
            there = Node()
            async with running(there) as pilot:
                fake = await ready(pilot, there)
                settle()  # As the app does soon after its start.
                found = await cost(pilot, fake, text, chosen.tokens, chosen.kept)
            middle = found.keys_ms[len(found.keys_ms) // 2]
            print(
                f"{kind:<9}{found.core:>5.1%}{found.stall_cpu_ms:>14.1f}"
                f"{found.stall_wall_ms:>15.1f}{middle:>12.1f}{found.keys_ms[-1]:>5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
