"""What the owner's feed costs: one tick at the node, and taking it in at the app.

    python tests/bench/feed.py [--nodes 50,1000] [--watch 20]

Run by hand. Prints milliseconds of CPU, the median of many ticks, for networks of so many Hosts of
one model: what gossip gives out, the picture, the frame, sealing it; and in the app opening and
decoding it. With --watch, the share of a core that a Sentinel of its own takes in so many seconds
with nobody and with one app attached to it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.coordinates import Coordinate
from diffuse_core.domain.gossip import Gossip
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import Push
from diffuse_core.domain.noise import CipherState
from diffuse_core.domain.observe import Sayings, network_view
from diffuse_core.domain.owner_messages import Update
from diffuse_core.domain.records import Holding, Load, ModelRef, Record, seal
from diffuse_core.domain.sealed_stream import SealedStream
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import FeedUpdate
from diffuse_core.settings import NetworkOptions
from diffuse_core.wiring import attach

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.services.attachment import NodeAttachment

LAYERS = 80
SHAPE = ModelShape(
    layers=LAYERS,
    hidden=8192,
    vocab=32000,
    context=8192,
    layer_bytes=2**28,
    embedding_bytes=2**28,
    head_bytes=2**28,
    kv_bytes=2**12,
)
MODEL = ModelRef("large-model-of-80-layers", "a" * 64, "bf16", SHAPE, "b" * 64)
OWN = Identity(bytes(32))
TICKS = 25
NETWORK = "bench"
STARTING_S, SETTLING_S = 5.0, 2.0


def known(hosts: int, rng: random.Random) -> Gossip:
    """The gossip of a node that knows so many Hosts."""
    gossip = Gossip(OWN, rng, boot_ms=1)
    own = Record(node=OWN.node, sequence=0, role="client", version="0.1.0")
    gossip.set_record(own, 0.0)
    for number in range(hosts):
        identity = Identity(rng.randbytes(32))
        start = rng.randrange(LAYERS - 10)
        record = Record(
            node=identity.node,
            sequence=1,
            role="host",
            version="0.1.0",
            addresses=(f"10.1.{number // 256}.{number % 256}:9440",),
            capacity=2**33,
            holding=Holding(MODEL, Slice(start, start + 10), "ready"),
            load=Load(1, 2**20, 2**30, 3.5, 1.0, 1.0),
            coordinate=Coordinate((number,) * 8, 100, 8),
        )
        gossip.receive(identity.node, Push((seal(record, identity),), ()), 1.0)
    return gossip


def timed(name: str, work: Callable[[], object]) -> None:
    """Print what one of many runs costs."""
    work()
    spent = []
    for _ in range(TICKS):
        before = process_time()
        work()
        spent.append(process_time() - before)
    print(f"  {name:<28} {1000 * statistics.median(spent):7.2f} ms")


def ticks(hosts: int) -> None:
    """One tick, piece by piece."""
    gossip = known(hosts, random.Random(1))
    members = gossip.members(2.0)
    view = network_view(members, OWN.node, 2.0, 3.0, 2)
    update = Update(FeedUpdate(view=view, telemetry=None))
    frame = encode(update)
    print(f"{len(members)} nodes, a frame of {len(frame) / 1000:.0f} kB")
    key = bytes(32)
    stream = SealedStream(CipherState(key), CipherState(key))
    timed("node: members", lambda: gossip.members(2.0))
    sayings = Sayings()
    timed("node: picture", lambda: network_view(members, OWN.node, 2.0, 3.0, 2, sayings))
    timed("node: frame", lambda: encode(update))
    timed("node: seal", lambda: stream.seal(frame, 0.0))
    sealed = [SealedStream(CipherState(key), CipherState(key)).seal(frame, 0.0)]
    timed(
        "app: open",
        lambda: SealedStream(CipherState(key), CipherState(key)).open(sealed[0]),
    )
    timed("app: decode", lambda: decode(frame))


async def watch(seconds: int) -> None:
    """A Sentinel's share of a core, first alone and then watched."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "diffuse_core", "sentinel", "--listen", "127.0.0.1:0"]
        command += ["--state-dir", folder, "--network", NETWORK]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            await asyncio.sleep(STARTING_S)
            await _compare(Path(folder), psutil.Process(process.pid), seconds)
        finally:
            process.terminate()
            await process.wait()


async def _compare(folder: Path, process: psutil.Process, seconds: int) -> None:
    print(f"nobody watches: {await _share(process, seconds):.2f} % of a core")
    attached = await attach(folder, NetworkOptions(name=NETWORK))
    following = asyncio.create_task(_follow(attached))
    try:
        await asyncio.sleep(SETTLING_S)
        print(f"one app watches: {await _share(process, seconds):.2f} % of a core")
    finally:
        following.cancel()
        await attached.close()


async def _follow(attached: NodeAttachment) -> None:
    async with aclosing(attached.updates()) as updates:
        async for _ in updates:
            pass


async def _share(process: psutil.Process, seconds: int) -> float:
    before = sum(process.cpu_times()[:2])
    await asyncio.sleep(seconds)
    return 100 * (sum(process.cpu_times()[:2]) - before) / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="50,1000")
    parser.add_argument("--watch", type=int, default=0)
    given = parser.parse_args()
    for hosts in filter(None, given.nodes.split(",")):
        ticks(int(hosts))
    if given.watch:
        asyncio.run(watch(given.watch))


if __name__ == "__main__":
    main()
