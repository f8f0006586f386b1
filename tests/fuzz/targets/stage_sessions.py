"""A Stage, and three nodes that say anything of three Sessions: as Clients and as other Stages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from diffuse_core.adapters.memory_transport import MemoryNetwork
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.services.links import DIAL_ALL_S, Links
from diffuse_core.services.stage import SWEEP_S, StageService
from diffuse_core.services.stage_run import GONE_S, SILENT_S
from tests.fuzz.pretend_executor import PretendCompute, PretendExecutor
from tests.fuzz.script import script
from tests.fuzz.stage import play, settle
from tests.fuzz.stage_peers import (
    AT_ONCE,
    CONTEXT,
    LAYERS,
    PEERS,
    PRINT,
    VOCAB,
    WIDTH,
    Act,
    StagePeers,
    did,
)

if TYPE_CHECKING:
    from typing import Any

    from tests.fuzz.virtual_loop import VirtualClock

SCRIPT = True
_OWN = NodeId(bytes([201]) * 32)
_MODEL = ModelRef("m", PRINT, "fp32", ModelShape(LAYERS, WIDTH, VOCAB, CONTEXT, 1, 1, 1, 8), PRINT)
_KV = 700_000
"""Bytes: two Sessions of many rows, or any of few."""
WORDS = (bytes([200]), bytes([255]), bytes([0] * 8))


async def _act(data: bytes, clock: VirtualClock) -> str:
    network = MemoryNetwork()
    transport = network.transport(_OWN)
    links = Links(transport, _OWN)
    listener = await transport.listen("mem", 0, links.accept)
    peers = StagePeers(network, listener.address, _OWN)
    doors = []
    for peer in PEERS:
        door = await network.transport(peer).listen("mem", 0, partial(peers.accept, peer))
        peers.places[peer] = door.address
        doors.append(door)
    compute: Any = PretendCompute()
    executor = PretendExecutor(Slice(0, LAYERS), LAYERS, WIDTH, VOCAB)
    stage = StageService(_OWN, links, clock, compute, executor, _MODEL, _KV)
    peers.stage = stage
    await peers.play(data)
    held, heard = stage.sessions, min(peers.heard, 9)
    await peers.leave()
    await settle(max(GONE_S, SILENT_S) + DIAL_ALL_S + 2 * SWEEP_S)
    assert stage.sessions == stage.kv_used == 0
    assert not executor.rows
    assert not stage._audits._mirrors
    await stage.close()
    for door in (*doors, listener):
        await door.close()
    await links.close()
    # Circuits, sends and farewells that wait for nobody any more.
    await settle(60.0)
    return f"{held} held, {heard} heard"


def target(data: bytes) -> str:
    """No handler fails, what is held is accounted for, and nothing is left of a Session."""
    return play(partial(_act, data))


def _opened(cut: int, turn: int, index: int, *more: int) -> tuple[int, bytes]:
    return did(Act.OPEN, 0, 0, cut, turn, index, *more)


def samples() -> dict[str, bytes]:
    """Sessions that run, through Stages of every place; each kind of message, and its misuse."""
    alone = _opened(0, 0, 0, 0, 8, 5, 0, 40)
    first, last = _opened(1, 0, 0, 0, 8, 5, 0, 40), _opened(1, 0, 1, 0, 8, 5, 0, 40)
    middle = _opened(2, 0, 1, 0, 8, 5, 0, 40)
    prompt, rows = did(Act.TOKENS, 0, 0, 0, 1, 5), did(Act.HIDDEN, 0, 0, 0, 5)
    row, token = did(Act.HIDDEN, 0, 0, 0, 1), did(Act.TOKENS, 1, 0, 0, 1, 1)
    guessed = did(Act.HIDDEN, 0, 0, 0, 4, 1, 3)
    watch, wait = did(Act.WATCH, 0, 0), did(Act.WAIT, 0, 2)
    guess = did(Act.RESUME, 0, 0, 0, 0, 7)
    again, on = did(Act.REROUTE, 0, 0, 0, 0, 2, 0, 1), did(Act.RESUME, 0, 0, 250, 0, 0)
    mirror = did(Act.MIRROR, 0, 0, 1, 1)
    return {
        "alone": script(alone, guess, prompt, wait, wait, watch),
        "first": script(first, guess, prompt, wait, token, wait, token, wait, token, watch),
        "last": script(last, rows, wait, row, wait, guessed, wait, row, did(Act.CREDIT, 0, 0, 3)),
        "middle": script(middle, rows, wait, row, wait, row, did(Act.RAN, 2, 0, 5), watch),
        "long": script(
            _opened(1, 0, 0, 0, 8, 140, 0, 40), did(Act.TOKENS, 0, 0, 0, 1, 140), wait, wait
        ),
        "rerouted": script(
            middle, rows, wait, again, wait, on, row, wait, did(Act.BREAK, 2), wait
        ),
        "audited": script(
            middle, rows, wait, mirror, did(Act.TAKE, 1, 1), wait, did(Act.RAN, 1, 1, 4)
        ),
        "auditing": script(
            _opened(2, 0, 1, 0, 8, 5, 100, 40, 1), rows, wait, did(Act.TELL, 0, 0, 0, 9, 0, 1)
        ),
        "examined": script(_opened(1, 0, 1, 3, 8, 5, 103, 3, 40, 1), rows, wait, row, row, wait),
        "spots": script(
            _opened(2, 0, 1, 0, 8, 5, 48, 40), rows, wait, did(Act.TELL, 0, 0, 0, 9, 2, 1)
        ),
        "bad-rows": script(middle, did(Act.HIDDEN, 0, 0, 0, 5, 0, 0, 254), wait, again, wait),
        "stalled": script(did(Act.STALL, 0), last, *[rows, wait, row] * 3, did(Act.WAIT, 0, 255)),
        "closed": script(alone, prompt, did(Act.CLOSE, 0, 0), alone, prompt, did(Act.BREAK, 0)),
        "at-once": script(*[(alone[0] + AT_ONCE, alone[1]), did(Act.CLOSE, 0, 0)] * 3),
        "silent": script(last, rows, did(Act.WAIT, 0, 120), watch, last, watch),
    }
