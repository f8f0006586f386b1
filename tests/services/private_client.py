"""A client in private mode, and an ear on everything that it gives to the network."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.domain.codec import decode
from diffuse_core.services.client import ClientService
from diffuse_core.services.devices import PROCESS_RESERVE, Device
from diffuse_core.services.observer import Observer
from diffuse_core.services.own_layers import Means, OwnLayers
from diffuse_core.services.own_stages import OwnStages
from tests.services.cluster import tokenizer_of
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.messages import AnyMessage
    from diffuse_core.model_ports import DeviceKind, Executor
    from diffuse_core.ports import Channel
    from diffuse_core.services.circuits import CircuitTransport
    from tests.services.cluster import Cluster


LOWEST = 200
"""Ids above all positions, sizes and credits of a test."""


class Ear:
    """A transport that keeps each frame it is given, before it is sealed."""

    def __init__(self, inner: CircuitTransport) -> None:
        self._inner = inner
        self.places = getattr(inner, "places", None)
        self.frames: list[bytes] = []

    async def dial(self, address: str, expected: NodeId | None, seconds: float) -> Channel:
        channel = await self._inner.dial(address, expected, seconds)
        send = channel.send

        async def heard(frame: bytes) -> None:
            self.frames.append(bytes(frame))
            await send(frame)

        channel.send = heard
        if hasattr(channel, "send_now"):
            send_now = channel.send_now

            def heard_now(frame: bytes, *, soon: bool = False) -> None:
                self.frames.append(bytes(frame))
                send_now(frame, soon=soon)

            channel.send_now = heard_now
        return channel

    def messages(self) -> list[AnyMessage]:
        """What left, as messages."""
        return [message for message, _ in map(decode, self.frames) if message is not None]

    def tells(self, tokens: Sequence[int], run: int = 3) -> list[str]:
        """Where `tokens` are among all that left: by message and field, or in raw bytes.

        In messages every number counts that is one of theirs (but for the lowest, which positions
        and sizes are as well), in raw bytes `run` of them in a row.
        """
        wanted = {token for token in tokens if token >= LOWEST}
        assert len(wanted) > len(set(tokens)) / 2
        found = []
        for message in self.messages():
            name = type(message).__name__
            found += [
                path
                for path, number in _numbers(msgspec.to_builtins(message), name)
                if number in wanted
            ]
        for pattern in _patterns(tokens, run):
            found += ["raw bytes" for frame in self.frames if pattern in frame]
        return found


def _numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Every whole number in a message, wherever it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner, path)
    elif type(value) is int:
        yield path, value


def _patterns(tokens: Sequence[int], run: int) -> Iterator[bytes]:
    """Some ids in a row, as they would be packed in any usual way."""
    for start in range(len(tokens) - run + 1):
        part = tokens[start : start + run]
        yield b"".join(map(msgspec.msgpack.encode, part))
        for size in (2, 4, 8):
            yield b"".join(token.to_bytes(size, "little") for token in part)
            yield b"".join(token.to_bytes(size, "big") for token in part)


@dataclass(eq=False)
class PrivateClient:
    """The client, what it runs, and what it told its user."""

    client: ClientService
    observer: Observer
    stages: OwnStages
    layers: OwnLayers
    ear: Ear
    told: list[str] = field(default_factory=list)
    loaded: list[tuple[str, float]] = field(default_factory=list)

    async def idle(self) -> None:
        """Wait until nothing of any session is left here."""
        for stage in self.stages.stages:
            await until(lambda stage=stage: stage.sessions == 0)
            assert stage.kv_used == 0
        await self.layers.compute.run(lambda: None)
        assert all(not executor._sessions for executor in self.layers.executors)


async def private_client(
    cluster: Cluster,
    *,
    named: str | None = None,
    free: int | None = None,
    lean: bool | None = None,
) -> PrivateClient:
    """A client of this cluster that can run layers itself, of `free` bytes of memory."""
    identity = cluster.identity()
    ear = Ear(cluster.transport(identity))
    observer = Observer(ear, SystemClock())
    cluster.stack.push_async_callback(observer.close)
    await observer.look(cluster.bootstrap)
    told: list[str] = []
    loaded: list[tuple[str, float]] = []
    room = cluster.device.free if free is None else PROCESS_RESERVE + free

    def device(_asked: DeviceKind | None) -> Device:
        return Device("cpu", threads=1, free=room)

    def load(*given: object, device: str) -> Executor:
        assert device == "cpu"
        return load_slice(*given) if lean is None else load_slice(*given, lean=lean)

    def progress(what: str, fraction: float) -> None:
        loaded.append((what, fraction))

    means = Means(device, cluster.store, load, told.append, progress)
    layers = OwnLayers(means, cluster.asked if named is None else named or None)
    cluster.stack.callback(layers.close)
    stages = OwnStages(identity.node, observer.links, observer.clock, layers)
    cluster.stack.push_async_callback(stages.close)
    storage = FileStorage(cluster.directory / f"client-{next(cluster.seeds)}")
    client = ClientService(observer, storage, tokenizer_of, random.Random(1), own_stages=stages)
    return PrivateClient(client, observer, stages, layers, ear, told, loaded)
