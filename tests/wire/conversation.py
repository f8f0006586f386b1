"""What a client says to hosts, and hears, in whole generations: recorded, and said again.

The frames are as they are inside the channels. Of times nothing is kept: what a client says to
show that it is there is left out. It uses only what every version has (see tests.wire.recording).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.domain.codec import framed
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.view import GenerateRequest
from tests.services.cluster import Cluster, start_split
from tests.services.tiny_model import ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.ports import Channel

PROMPT, COUNT = 13, 100
SAID = ("open", "resume", "k", "credit", "close")
"""Kinds of messages of a client that a generation is made of."""
HEARD = ("opened", "refused", "failed", "d")
"""Of hosts. In a recording the tokens are apart, and when they came is not told."""
DEADLINE_S = 30.0

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "greedy, one stage": (1, {"speculate": False}),
    "greedy with guesses, two stages": (2, {}),
    "sampled with penalties, three stages": (
        3,
        {
            "sampling": SamplingParams(
                temperature=0.8, top_p=0.9, seed=11, repetition_penalty=1.2, presence_penalty=0.3
            ),
            "logprobs": 2,
            "timings": True,
        },
    ),
}
"""Stages, and what is asked for."""


def unpacked(frame: bytes) -> dict[str, Any]:
    """A frame's message, read without any structure of ours."""
    start, size = (1, frame[0]) if frame[0] != 0xFF else (5, int.from_bytes(frame[1:5], "little"))
    return dict(msgspec.msgpack.decode(frame[start : start + size]))


class Tap:
    """A channel that lets its frames be read."""

    def __init__(self, inner: Channel, lines: list[tuple[bytes, str, bytes]]) -> None:
        self._inner = inner
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, frame: bytes) -> None:
        self._lines.append((self._inner.remote, "to", frame))
        await self._inner.send(frame)

    async def receive(self) -> bytes:
        frame = await self._inner.receive()
        self._lines.append((self._inner.remote, "from", frame))
        return frame


async def record_case(cluster: Cluster, request: GenerateRequest) -> dict[str, Any]:
    """One generation of a client with the hosts of a network."""
    lines: list[tuple[bytes, str, bytes]] = []
    observer = await cluster.observer()
    base = observer.links._transport
    dial = base.dial

    async def tapped(*given: Any) -> Any:
        return Tap(await dial(*given), lines)

    base.dial = tapped  # type: ignore[method-assign]
    client = await cluster.client(observer)
    _, tokens, _ = await client.whole(request)
    await asyncio.sleep(0.5)  # The last words are said after the end.
    hosts = [host.id for host in cluster.hosts]
    script = [
        {"host": hosts.index(remote), "way": way, "frame": frame.hex()}
        for remote, way, frame in list(lines)
        if remote in hosts and unpacked(frame)["t"] in (SAID if way == "to" else HEARD)
    ]
    return {
        "hosts": [bytes(host).hex() for host in hosts],
        "script": script,
        "tokens": list(tokens),
    }


def record_conversations(place: Path) -> None:
    """Write what is said in all cases to `place`."""
    told = asyncio.run(_cases(place.parent))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in told.items())
    place.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


async def _cases(scratch: Path) -> dict[str, Any]:
    told = {}
    tiny = make_tiny_model(scratch / "tiny")
    for name, (stages, asked) in CASES.items():
        async with AsyncExitStack() as stack:
            cluster = await start_split(stack, tiny, scratch / str(stages), stages, sockets=True)
            request = GenerateRequest(
                model="tiny", raw=words(PROMPT), max_tokens=COUNT, ignore_eos=True, **asked
            )
            told[name] = await record_case(cluster, request)
    assert tuple(told["greedy, one stage"]["tokens"]) == tiny.says(
        ids(PROMPT), COUNT, ignore_eos=True
    )
    return told


class Replay:
    """Says again what a client said, to the hosts of a network of today."""

    def __init__(self, cluster: Cluster, case: dict[str, Any]) -> None:
        self._cluster = cluster
        self._case = case
        self._then = [bytes.fromhex(host) for host in case["hosts"]]
        self._channels: dict[int, Channel] = {}
        self.heard: dict[str, list[dict[str, Any]]] = {kind: [] for kind in HEARD}
        self._news = asyncio.Condition()

    @property
    def tokens(self) -> list[int]:
        """Those that were drawn so far."""
        return [token for message in self.heard["d"] for token in message["k"]]

    async def run(self, stack: AsyncExitStack) -> None:
        """From the first frame to the last."""
        transport = self._cluster.transport(self._cluster.identity())
        for at, host in enumerate(self._cluster.hosts):
            channel = await transport.dial(host.address, host.id, DEADLINE_S)
            stack.push_async_callback(channel.close)
            self._channels[at] = channel
            stack.callback(asyncio.create_task(self._listen(channel)).cancel)
        opened = 0
        for line in self._case["script"]:
            frame = bytes.fromhex(line["frame"])
            message = unpacked(frame)
            if line["way"] == "to":
                if message["t"] == "close":
                    await self._until_tokens(len(self._case["tokens"]))
                await self._channels[line["host"]].send(self._today(message))
            elif message["t"] == "opened":
                opened += 1
                await self._until_opened(opened)

    def _today(self, message: dict[str, Any]) -> bytes:
        """The frame, with the ids and addresses of these hosts."""
        hosts = self._cluster.hosts
        for hop in message.get("route", ()):
            host = hosts[self._then.index(hop["node"])]
            hop["node"], hop["addresses"] = bytes(host.id), [host.address]
        if "fingerprint" in message:
            message["fingerprint"] = hosts[0].service.model.fingerprint
        return framed(msgspec.msgpack.encode(message))

    async def _listen(self, channel: Channel) -> None:
        while True:
            message = unpacked(await channel.receive())
            if message["t"] in HEARD:
                async with self._news:
                    self.heard[message["t"]].append(message)
                    self._news.notify_all()

    def _problem(self) -> bool:
        return bool(self.heard["refused"] or self.heard["failed"])

    async def _until_opened(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(
                lambda: len(self.heard["opened"]) >= count or self._problem()
            )
        assert not self._problem(), self.heard

    async def _until_tokens(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(lambda: len(self.tokens) >= count or self._problem())
        assert not self._problem(), self.heard
