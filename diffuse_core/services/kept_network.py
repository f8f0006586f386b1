"""Keeps one look at the network alive for a process that lives for weeks, and answers on it.

A command looks once. Nodes come and go while a server runs, the node here is restarted at another
port, at times there is no network at all: the picture is refreshed while anybody asks, and when
all that were known are gone the network is found anew, as if the process had just begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError, Unreachable
from diffuse_core.services.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection

    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, NetworkView
    from diffuse_core.ports import Clock
    from diffuse_core.services.client import ClientService
    from diffuse_core.services.observer import Observer

log = logging.getLogger(__name__)


RETRY_S = 1.0
"""A picture that could not be refreshed is not tried again before."""


@dataclass(frozen=True)
class Times:
    """How fresh the picture is kept, and how long things may take. Seconds."""

    fresh: float = 3.0
    """A picture no older than that is good for a request; refreshed so often while any come."""
    idle: float = 30.0
    """It is refreshed so often while nobody asks."""
    bytes_per_s: float = 32 * 2**10
    """Of a large picture, which is good for longer: for as long as it takes at this pace, up to
    `idle`. So servers of the API stay a small load on the nodes of a large network."""
    asking: float = 15.0
    """So long after a request more of them are expected."""
    lost: float = 8.0
    """A picture so old that cannot be refreshed is of a network that is gone; a large one so
    much later as it is good for longer."""
    wait: float = 5.0
    """So long a request waits for the network to be found."""
    first_pause: float = 0.5
    last_pause: float = 30.0
    """Between two tries to find it, doubled each time; while anybody asks at most `fresh`."""
    find: float = 30.0
    """One try may take so long."""
    linger: float = 1800.0
    """Generations that go on over an earlier look get so long before it is closed."""


@dataclass(eq=False)
class _Look:
    """An observer, what generates through it, and how many use that."""

    observer: Observer
    client: ClientService
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)


class KeptNetwork:
    """The network, as `ports.Answers` over whatever look at it is the present one."""

    def __init__(
        self,
        find: Callable[[], Awaitable[Observer]],
        client: Callable[[Observer], ClientService],
        clock: Clock,
        times: Times | None = None,
    ) -> None:
        """`find` looks for the network once, `client` makes what generates on it."""
        self._find = find
        self._client = client
        self._clock = clock
        self._times = times or Times()
        self._tasks = TaskOwner("kept network")
        self._look: _Look | None = None
        self._old: set[_Look] = set()
        self._refreshing = asyncio.Lock()
        self._tried_at = -math.inf
        self._asked_at = -math.inf
        self._nudge = asyncio.Event()
        self._found = asyncio.Event()
        self._problem: DiffuseError = Unreachable(
            "the network is still looked for; ask again in some seconds"
        )

    @property
    def trouble(self) -> str:
        """Why there is no network to answer with; empty where there is one."""
        return "" if self._look is not None else str(self._problem)

    def start(self) -> None:
        """Begin to look for the network, and keep at it."""
        self._tasks.spawn(self._keep(), "keep")

    async def close(self) -> None:
        """End everything, generations too."""
        await self._tasks.close()
        looks = [*self._old, *([self._look] if self._look else [])]
        self._look = None
        self._old.clear()
        await asyncio.gather(*(look.observer.close() for look in looks), return_exceptions=True)

    async def view(self) -> NetworkView:
        """The network as it was a few seconds ago; if it is large, up to half a minute ago.

        Raises:
            Unreachable: no node of it answers.
        """
        return (await self._fresh()).observer.view()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream a generation, as services.client does; closing the generator cancels it.

        Raises:
            Unreachable: no node of the network answers.
            DiffuseError: as services.client.
        """
        async with (
            self._used() as client,
            aclosing(client.generate(request)) as events,
        ):
            async for event in events:
                yield event

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """Texts of single tokens of a model, as `Tokenizer.token_text` gives them."""
        async with self._used() as client:
            return await client.token_texts(model, tokens)

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """Bytes of single tokens of a model, as `Tokenizer.token_bytes` gives them."""
        async with self._used() as client:
            return await client.token_bytes(model, tokens)

    async def tool_format(self, model: str) -> ToolFormat | None:
        """How a model writes calls of tools, as `Tokenizer.tool_format` tells it."""
        async with self._used() as client:
            return await client.tool_format(model)

    @contextlib.asynccontextmanager
    async def _used(self) -> AsyncIterator[ClientService]:
        """What generates now; its look stays open as long as it is used."""
        look = await self._fresh()
        look.users += 1
        try:
            yield look.client
        finally:
            look.users -= 1
            if not look.users:
                look.unused.set()

    async def _fresh(self) -> _Look:
        """A look that is fresh enough for a request."""
        self._asked_at = self._clock.monotonic()
        if (look := self._look) is not None:
            if self._age(look) > self._good_for(look):
                await self._refresh(look)
            if look is self._look:
                return look
        self._nudge.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._times.wait):
                await self._found.wait()
        if self._look is None:
            raise Unreachable(str(self._problem))
        return self._look

    async def _refresh(self, look: _Look) -> None:
        """Pull the picture once more, or give it up; for all who ask at the same time at once."""
        async with self._refreshing:
            if look is not self._look:
                return
            if self._clock.monotonic() - self._tried_at >= RETRY_S:
                try:
                    await look.observer.look_again()
                except DiffuseError:
                    pass
                except Exception:
                    # Whoever keeps at it for weeks must not end by what one node sent.
                    log.exception("the picture of the network could not be refreshed")
                self._tried_at = self._clock.monotonic()
            if self._age(look) >= self._good_for(look) + self._times.lost - self._times.fresh:
                self._drop(look)

    def _good_for(self, look: _Look) -> float:
        """How long its picture is fresh, in seconds."""
        times = self._times
        takes = look.observer.pulled_bytes / times.bytes_per_s
        return max(times.fresh, min(takes, times.idle))

    def _age(self, look: _Look) -> float:
        return self._clock.monotonic() - look.observer.pulled_at

    def _anybody_asks(self) -> bool:
        return self._clock.monotonic() - self._asked_at < self._times.asking

    async def _keep(self) -> None:
        """Find the network, keep the picture of it fresh, find it again when it is gone."""
        pause = self._times.first_pause
        while True:
            if (look := self._look) is not None:
                await self._doze(self._times.fresh)
                due = self._good_for(look) if self._anybody_asks() else self._times.idle
                # Nearly due counts: the next look is a while away.
                if self._age(look) >= 0.9 * due:
                    await self._refresh(look)
            elif await self._look_around():
                pause = self._times.first_pause
            else:
                # However many ask for what cannot be found, it is not tried more often.
                await asyncio.sleep(min(pause, self._times.first_pause))
                await self._doze(pause if not self._anybody_asks() else self._times.fresh)
                pause = min(2 * pause, self._times.last_pause)

    async def _doze(self, seconds: float) -> None:
        """Wait, at most until a request needs the network to be found."""
        self._nudge.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()

    async def _look_around(self) -> bool:
        """Try once to find the network; whether that succeeded."""
        try:
            async with asyncio.timeout(self._times.find):
                observer = await self._find()
        except (DiffuseError, OSError) as error:
            self._note(error if isinstance(error, DiffuseError) else Unreachable(str(error)))
            return False
        except TimeoutError:
            self._note(Unreachable("nobody on the network answered in time; ask again"))
            return False
        except Exception:
            log.exception("looking for the network failed")
            self._note(Unreachable("looking for the network met a defect; the log has its place"))
            return False
        log.info("reached the network")
        self._look = _Look(observer, self._client(observer))
        self._found.set()
        return True

    def _note(self, error: DiffuseError) -> None:
        if str(error) != str(self._problem):
            log.warning("no network: %s", error)
        self._problem = error

    def _drop(self, look: _Look) -> None:
        """Let go of a look whose network is gone; what runs over it goes on."""
        if look is not self._look:
            return
        log.warning("no node of the network answers any more; it is looked for anew")
        self._problem = Unreachable(
            "no node of the network answers any more; it is looked for, ask again in some seconds"
        )
        self._look = None
        self._found.clear()
        self._nudge.set()
        self._old.add(look)
        self._tasks.spawn(self._let_go(look), "let go")

    async def _let_go(self, look: _Look) -> None:
        if look.users:
            look.unused.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._times.linger):
                    await look.unused.wait()
        await look.observer.close()
        self._old.discard(look)
