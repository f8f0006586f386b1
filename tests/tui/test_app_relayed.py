"""What the app shows of relayed nodes, and of an answer that went on elsewhere."""

from __future__ import annotations

import pytest
from tui_driver import NARROW, WIDE, ask, idle, ready, running, screen_text, shown, until
from tui_fakes import Node, finished, network, node

from diffuse_core.domain.view import TextDelta

RELAYS = ("1a2b3c4d" + "0" * 56,)


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_relayed_nodes_are_marked_and_this_one_says_through_whom(
    size: tuple[int, int],
) -> None:
    there = Node()
    async with running(there, size) as pilot:
        there.first.show(
            network(
                node(1, (0, 15), me=True, relays=RELAYS),
                node(2, (15, 30), rtt_s=0.25, relays=RELAYS),
                node(3, addresses=("10.0.0.2:1",), rtt_s=0.25),
            )
        )
        await pilot.press("f2")
        await shown(pilot, "250 ms⇄")
        trips = [line for line in screen_text(pilot).split("\n") if "250 ms" in line]
        marked = {line.split("0000000")[1][0]: "250 ms⇄" in line for line in trips}
        assert marked == {"2": True, "3": False}
        # The word has a column of its own, of those that come when they are asked for.
        await pilot.press("right", "right", "right")
        await shown(pilot, " relayed ")
        rows = [line for line in screen_text(pilot).split("\n") if "0000000" in line]
        assert ["relayed" in row for row in rows[-3:]] == [True, True, False]
        assert " direct " in rows[-1]
        await pilot.press("f4")
        await shown(pilot, "relayed by sentinel 1a2b3c4d")
        there.first.show(network(node(1, (0, 15), me=True)))
        await shown(pilot, "no sentinel relays for it now")


async def test_an_answer_that_went_on_elsewhere_says_so_underneath() -> None:
    there = Node()
    async with running(there, NARROW) as pilot:
        fake = await ready(pilot, there)
        await ask(pilot, fake, "Hello")
        events = fake.generations[-1].events
        events.put_nowait(TextDelta("the answer", (1,)))
        event = "0a0a0a0a was lost (it closed); went on with 0b0b0b0b after 1.2 s"
        events.put_nowait(finished(events=(event,)))
        events.put_nowait(None)
        await until(pilot, idle(pilot))
        await shown(pilot, f"▲ {event}")
