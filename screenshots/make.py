"""Draw all pictures of this folder anew, from a real network on this machine.

    python screenshots/make.py [--out DIR] [--only NAME ...]

Six host processes hold the demo model twice; questions and answers, routes, figures and the death
of a host in the middle of an answer are all real. Node ids, times and rates differ between runs.
Takes two minutes; needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from film import Film, save_png
from network import Network, real_network

from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.domain.view import RouteChosen
from diffuse_core.settings import PUBLIC
from diffuse_tui.app import DiffuseApp
from diffuse_tui.local_node import LocalNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

    from diffuse_core.domain.view import FeedUpdate, GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.ports import Attachment

HERE = Path(__file__).resolve().parent
LARGE, SMALL = (120, 40), (80, 24)
QUESTION = "What is the capital of France?"
LONG = "Write a short story about a lighthouse."
FILM_TOKENS = 320
"""Long enough to see a host die and the answer go on, short enough to see its end."""
DEADLINE_S = 120.0


class Shot(NamedTuple):
    """A picture: its name, the terminal's size, and the keys that lead there from the chat."""

    name: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()


SHOTS = (
    Shot("demo", LARGE),
    Shot("demo-80x24", SMALL),
    Shot("network-80x24", SMALL, ("f2",)),
    Shot("machine-80x24", SMALL, ("f4",)),
    Shot("what-if", LARGE, ("f6", "space", "j", "space")),
    Shot("host", LARGE, ("f7",)),
    Shot("conversations", LARGE, ("f8",)),
    Shot("waterfall", LARGE, ("escape", "v")),
    Shot("help", LARGE, ("f1",)),
)


class Watched:
    """The attachment that the app uses; remembers the newest view and route."""

    def __init__(self, inner: Attachment) -> None:
        self._inner = inner
        self.view: NetworkView | None = None
        self.route: tuple[str, ...] = ()

    async def updates(self) -> AsyncIterator[FeedUpdate]:
        """The node's own."""
        async for update in self._inner.updates():
            self.view = update.view
            yield update

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """The network's own."""
        async for event in self._inner.generate(request):
            if isinstance(event, RouteChosen):
                self.route = tuple(step.node for step in event.route)
            yield event

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()


class Studio:
    """The app on the first host of a network, and what is done with it."""

    def __init__(self, pilot: Pilot[None], seen: list[Watched], network: Network) -> None:
        self.pilot = pilot
        self.app = pilot.app
        self._seen = seen
        self._network = network

    async def state(self, *words: str) -> None:
        """Wait until the model shown is in one of these states."""
        await self.until(
            lambda: any(
                view is not None and any(model.state in words for model in view.models)
                for view in (self._seen[-1].view if self._seen else None,)
            )
        )
        await self.pilot.pause(0.5)

    async def until(self, condition) -> None:  # noqa: ANN001
        """Wait for something of the real network; the deadline is a failure."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await self.pilot.pause(0.05)

    @property
    def pane(self):  # noqa: ANN201
        """The chat."""
        return self.app.screen_stack[0].query_one("#chat")

    async def ask(self, question: str) -> None:
        """Send a question; returns when it is under way."""
        await self.pilot.press("f3")
        self.app.screen.query_one("#prompt").insert(question)
        await self.pilot.press("enter")
        await self.until(lambda: self.pane.busy)

    async def answered(self) -> None:
        """Wait for the end of the answer."""
        await self.until(lambda: not self.pane.busy)
        await self.pilot.pause(0.5)

    async def shoot(self, shot: Shot, out: Path) -> None:
        """Go there, take the picture, come back."""
        await self.pilot.resize_terminal(*shot.size)
        await self.pilot.press("f3", *shot.keys)
        await self.pilot.pause(1.5)
        print(save_png(self.app, out / shot.name))
        while len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        await self.pilot.pause(0.2)

    async def film_a_loss(self, out: Path) -> None:
        """Kill a host in the middle of a long answer, and film how it goes on."""
        await self.pilot.resize_terminal(*LARGE)
        self.pane.do("set", f"max_tokens {FILM_TOKENS}")
        film = Film(self.app)
        async with film.rolling():
            await self.ask(LONG)
            await self.until(lambda: bool(self._seen[-1].route))
            await self.pilot.pause(3.0)
            me = self._seen[-1].view.me
            self._network.kill(next(node for node in self._seen[-1].route if node != me))
            await self.answered()
            await self.pilot.pause(1.0)
        print(film.save(out / "heal.gif"))

    async def lose_layers(self) -> None:
        """Kill hosts until some layers are held by nobody."""
        view = self._seen[-1].view
        held = [node for node in view.nodes if node.slice and node.liveness == "alive"]
        mine = next(node.slice for node in held if node.me)
        part = next(node.slice for node in held if not node.slice.overlaps(mine))
        for node in held:
            if node.slice.overlaps(part):
                self._network.kill(node.node)
        await self.state("Incomplete")


async def render(out: Path, only: set[str]) -> None:
    """Start the network, take every picture, film the loss."""
    seen: list[Watched] = []
    with tempfile.TemporaryDirectory() as place:
        async with real_network(3, 3, Path(place)) as network:
            node = LocalNode(network.first, PUBLIC, (), may_start=False)

            async def attach() -> Watched:
                seen.append(Watched(await node.attach()))
                return seen[-1]

            app = DiffuseApp(attach, model=DEMO_MODEL_ID)
            async with app.run_test(size=LARGE) as pilot:
                studio = Studio(pilot, seen, network)
                await studio.state("Robust")
                await studio.ask(QUESTION)
                await studio.answered()
                for shot in SHOTS:
                    if not only or shot.name in only:
                        await studio.shoot(shot, out)
                if not only or "heal" in only:
                    await studio.film_a_loss(out)
                if not only or "incomplete" in only:
                    await studio.lose_layers()
                    await studio.shoot(Shot("incomplete", LARGE), out)


def main() -> None:
    """Render all, or what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(render(options.out, set(options.only)))


if __name__ == "__main__":
    main()
