"""Over real sockets: proofs made by others or for another purpose, and keys of low order."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import msgspec
import pytest
from nacl import bindings
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from diffuse_core.adapters.websocket_transport.connection import OPTIONS
from diffuse_core.domain.channel import Credentials, Handshake, HandshakeFailed
from diffuse_core.domain.messages import PROTOCOL_MINOR
from diffuse_core.errors import Unreachable
from tests.adapters.websocket_transport.meeting import (
    ALICE,
    BOB,
    EVE,
    TIMEOUT,
    Inbox,
    alice,
    listening,
    until,
)
from tests.adapters.websocket_transport.tampering import nothing_unhandled
from tests.domain.test_noise import LOW_ORDER

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection

    from diffuse_core.domain.channel import Role

OPEN = {"subprotocols": ["diffuse"], **OPTIONS}
STATIC = b"\x33" * 32
PUBLIC = bindings.crypto_scalarmult_base(STATIC)
NET = b"diffuse\x00\x02net"


def proofs(role: Role) -> dict[str, bytes]:
    """What Eve may show in `role` that proves nothing; `right` would."""
    mine, other = (b"\x00", b"\x01") if role == "dialler" else (b"\x01", b"\x00")

    def signed(statement: bytes, label: str = "channel", whose: object = EVE) -> bytes:
        return msgspec.msgpack.encode([EVE.node, whose.sign(label, statement), 2, PROTOCOL_MINOR])

    return {
        "right": signed(mine + PUBLIC + NET),
        "no signature": msgspec.msgpack.encode([EVE.node]),
        "an empty signature": msgspec.msgpack.encode([EVE.node, b"", 2, 0]),
        "zeros": msgspec.msgpack.encode([EVE.node, bytes(64), 2, 0]),
        "a foreign signature": signed(mine + PUBLIC + NET, whose=BOB),
        "a record's label": signed(mine + PUBLIC + NET, "record"),
        "the other role": signed(other + PUBLIC + NET),
        "another network": signed(mine + PUBLIC + b"diffuse\x00\x02ten"),
        "another version": signed(mine + PUBLIC + b"diffuse\x00\x01net"),
        "a relayed channel": signed(mine + PUBLIC + b"relayed\x00\x02net"),
        "another static key": signed(mine + bytes(32) + NET),
    }


def credentials(proof: bytes) -> Credentials:
    made = Credentials(EVE, "net", STATIC)
    made._proofs = dict.fromkeys(made._proofs, proof)
    return made


@pytest.mark.parametrize("kind", [kind for kind in proofs("dialler") if kind != "right"])
async def test_a_listener_refuses_a_dialler_that_shows(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="diffuse_core")
    inbox = Inbox()
    async with nothing_unhandled(), listening(inbox) as listener:
        handshake = Handshake(credentials(proofs("dialler")[kind]), "dialler", b"\x11" * 32)
        async with connect(f"ws://{listener.address}/", **OPEN) as connection:
            await connection.send(handshake.start())
            await connection.send(handshake.receive(await connection.recv(decode=False)))
            await connection.send(handshake.session().seal(b"a frame", 0.0))
            with pytest.raises(ConnectionClosed) as caught:
                await connection.recv()
        assert caught.value.rcvd.code == 4000
        assert inbox.channels.empty()
    assert "identity is not proven" in caplog.text or "malformed" in caplog.text


@pytest.mark.parametrize("kind", [kind for kind in proofs("listener") if kind != "right"])
async def test_a_dialler_refuses_a_listener_that_shows(kind: str) -> None:
    text = await answer_of(credentials(proofs("listener")[kind]))
    assert "identity is not proven" in text or "malformed" in text


async def test_the_right_proof_would_have_been_taken() -> None:
    assert "node 03" not in await answer_of(credentials(proofs("listener")["zeros"]))
    shown = credentials(proofs("listener")["right"])
    assert shown.proof("listener", "direct") == Credentials(EVE, "net", STATIC).proof(
        "listener", "direct"
    )
    inbox = Inbox()
    async with listening(inbox) as listener:
        handshake = Handshake(credentials(proofs("dialler")["right"]), "dialler", b"\x11" * 32)
        async with connect(f"ws://{listener.address}/", **OPEN) as connection:
            await connection.send(handshake.start())
            await connection.send(handshake.receive(await connection.recv(decode=False)))
            assert (await inbox.channels.get()).remote == EVE.node


async def answer_of(shown: Credentials, ephemeral: bytes = b"") -> str:
    """Why Alice does not take somebody who answers with these credentials."""

    async def respond(connection: Connection) -> None:
        with contextlib.suppress(ConnectionClosed, HandshakeFailed):
            handshake = Handshake(shown, "listener", b"\x55" * 32)
            second = handshake.receive(await connection.recv(decode=False))
            await connection.send(ephemeral + second[len(ephemeral) :])
            await connection.wait_closed()

    async with nothing_unhandled(), serve(respond, "127.0.0.1", 0, **OPEN) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(Unreachable) as caught:
            await alice().dial(f"{host}:{port}", None, TIMEOUT)
        server.close()
        await server.wait_closed()
    return str(caught.value)


@pytest.mark.parametrize("key", LOW_ORDER, ids=bytes.hex)
async def test_keys_of_low_order_are_refused_by_both_ends(
    key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="diffuse_core")
    assert "low order" in await answer_of(Credentials(EVE, "net", STATIC), key)
    inbox = Inbox()
    async with nothing_unhandled(), listening(inbox) as listener:
        first = Handshake(Credentials(ALICE, "net", STATIC), "dialler", b"\x11" * 32).start()
        async with connect(f"ws://{listener.address}/", **OPEN) as connection:
            await connection.send(key + first[32:])
            with pytest.raises(ConnectionClosed) as caught:
                await connection.recv()
        assert caught.value.rcvd.code == 4000
        await until(lambda: "low order" in caplog.text)
        assert inbox.channels.empty()
