"""Strikes Stages of an answer, and sees that it goes on as if nothing had been.

For a StageNet in virtual time (`tests.services.scripted_time`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import Healed, Waiting
from tests.services.scripted_time import now, played
from tests.services.stage_net import refusing, with_nan
from tests.services.stage_sentinels import RelayedHost, StageSentinel
from tests.services.tiny_model import ids

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from diffuse_core.domain.slices import Slice
    from diffuse_core.services.generation import Generation
    from tests.services.stage_net import StageHost, StageNet
    from tests.services.tiny_model import TinyModel

Fault = Literal["killed", "frozen", "cut", "nan", "refusing"]
FAULTS: tuple[Fault, ...] = ("killed", "frozen", "cut", "nan", "refusing")
OFTEN: tuple[Fault, ...] = ("killed", "frozen")
SOME_FAULTS = [
    pytest.param(fault, marks=() if fault in OFTEN else pytest.mark.slow) for fault in FAULTS
]
"""All, where those that are much like others need not be tried each time."""
GOALS_S: dict[Fault, float] = {
    "killed": 2.0,
    "frozen": 5.0,
    "cut": 2.0,
    "nan": 2.0,
    "refusing": 2.0,
}
"""That an answer may stand still for; a replay takes next to nothing here."""
PARTS = ((0, 4), (4, 7), (7, 10))
PROMPT = ids(45, 3)
COUNT = 30
IN_PROMPT = 17
IN_ANSWER = len(PROMPT) + 9
IN_REPLAY = 20
SAMPLING = SamplingParams(temperature=1.2, top_p=0.95, seed=7, presence_penalty=0.4)

LET_GO_S = 15.0
"""After so long nobody keeps what a client left behind."""

_said: dict[SamplingParams, list[int]] = {}


def undisturbed(tiny: TinyModel, sampling: SamplingParams = SAMPLING) -> list[int]:
    """What is said when nothing happens and nothing is guessed; that is tried once."""

    async def ask(net: StageNet) -> None:
        await hosts(net)
        answer = Answer(net, sampling)
        await answer.read()
        assert not answer.healed
        answer.each_row_once()
        await answer.end()
        _said[sampling] = answer.tokens

    if sampling not in _said:
        played(tiny, ask)
    return _said[sampling]


async def hosts(
    net: StageNet, counts: Sequence[int] = (2, 2, 2), sentinels: int = 0
) -> list[StageSentinel]:
    """So many hosts of each third; met through so many sentinels, which it gives."""
    made = [await StageSentinel(net).start() for _ in range(sentinels)]

    def relayed(net: StageNet, part: Slice) -> RelayedHost:
        return RelayedHost(net, part, made)

    for part, count in zip(PARTS, counts, strict=True):
        for _ in range(count):
            await (net.host(*part, relayed) if made else net.host(*part))
    return made


def strike(host: StageHost, fault: Fault) -> None:
    """Do it now."""
    if fault in ("nan", "refusing"):
        host.executor.spoil = with_nan if fault == "nan" else refusing
    else:
        {"killed": host.kill, "frozen": host.freeze, "cut": host.cut}[fault]()


@dataclass
class Answer:
    """An answer of a network, and what becomes of it."""

    net: StageNet
    sampling: SamplingParams = SAMPLING
    speculate: bool = False
    tokens: list[int] = field(default_factory=list)
    healed: list[Healed] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    struck: dict[StageHost, float] = field(default_factory=dict)
    """Who was struck, and when."""
    ran: set[str] = field(default_factory=set)
    """Nodes that ran a Stage when a token came, or were to run one at first."""

    def __post_init__(self) -> None:
        self.asked: Generation = self.net.generation(
            PROMPT, COUNT, self.sampling, speculate=self.speculate
        )

    async def open(self) -> None:
        await self.asked.open()
        self.ran |= {step.node for step in self.asked.route}

    def on(self, index: int) -> StageHost:
        """Who runs a Stage now."""
        return self.net.on(self.asked, index)

    def at_row(self, host: StageHost, row: int, *blows: tuple[StageHost, Fault]) -> None:
        """Strike as soon as `host` computed a row."""

        def act() -> None:
            for victim, fault in blows:
                self._strike(victim, fault)

        host.executor.at_row[row] = host.soon(act)

    def in_replay(self, of: StageHost, fault: Fault, victim: int | None = None) -> None:
        """Strike whoever takes the place of a host, in the middle of the prompt's replay.

        With `victim` it is the Stage of that index that is struck then, in place of it.
        """
        struck = len(self.struck) + 1

        def act(host: StageHost) -> None:
            if len(self.struck) == struck:
                self._strike(host if victim is None else self.on(victim), fault)

        for host in self.net.hosts:
            if host.part == of.part and host is not of:
                host.executor.at_row[IN_REPLAY] = host.soon(partial(act, host))

    def _strike(self, host: StageHost, fault: Fault) -> None:
        self.struck[host] = now()
        strike(host, fault)

    async def read(self) -> None:
        """Hear it to its end."""
        if self.asked.run is None:
            await self.open()
        while len(self.tokens) < COUNT:
            event = await self.asked.next()
            if isinstance(event, Healed):
                self.healed.append(event)
            elif not isinstance(event, Waiting):
                self.came += [now()] * len(event.tokens)
                self.tokens += event.tokens
                self.ran |= {step.node for step in self.asked.route}

    def stall(self) -> float:
        """The longest time without a token after the last blow, in seconds."""
        return self.longest(max(self.struck.values()))

    def longest(self, since: float) -> float:
        """The longest time without a token since then, in seconds."""
        times = [since, *(at for at in self.came if at >= since)]
        return max((later - before for before, later in pairwise(times)), default=0.0)

    def each_row_once(self) -> None:
        """No Stage of the Route computed a row twice, and none lacks one."""
        rows = set(range(len(PROMPT) + COUNT - 1))
        for index in range(len(PARTS)):
            counted = self.on(index).executor.rows
            assert set(counted) == rows, (index, counted)
            assert set(counted.values()) == {1}, (index, counted)

    def told(self) -> None:
        """That each that ran a Stage was lost was told, who replaced it, and nothing else."""
        lost = [event.lost.node for event in self.healed]
        assert sorted(lost) == sorted({host.id.hex() for host in self.struck} & self.ran)
        for event in self.healed:
            taken = [step.node for step in event.replaced_by]
            places = [step.node for step in event.route if step.slice.overlaps(event.lost.slice)]
            assert taken == places
            assert event.lost.node not in taken
            assert event.why
        assert [step.node for step in self.asked.route] == [self.on(i).id.hex() for i in range(3)]

    async def end(self) -> None:
        """Close it; nothing may be left of it anywhere but where machines died."""
        await self.asked.close()
        await self.net.idle()
        for host in self.struck:
            if host.is_up:
                await asyncio.sleep(LET_GO_S)
                assert host.stage.sessions == 0


def survives(
    tiny: TinyModel,
    begin: Callable[[StageNet], Awaitable[Answer]],
    goal_s: float,
) -> None:
    """What `begin` begins ends well: the same tokens, all is told, no row is computed twice."""
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        answer = await begin(net)
        await answer.read()
        assert answer.tokens == wanted
        assert answer.struck
        answer.told()
        answer.each_row_once()
        assert answer.stall() <= goal_s, (answer.stall(), answer.asked.events)
        await answer.end()

    played(tiny, act)
