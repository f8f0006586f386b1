"""A sentinel, two relayed hosts of half a model each and a client, in one process, on tape.

All are built of real parts over real sockets. On tape are what the sentinel reads and writes
(`seen`), what its sockets carry (`wire`), and what the ends give to be sealed (`said`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.services.circuits import CircuitTransport
from diffuse_core.services.node import Node
from diffuse_core.services.reachability import Reachability
from diffuse_core.services.relay import RelayService
from diffuse_core.services.reservations import Reservations, sentinels
from tests.e2e.capture import RecordedTransport, RecordingProxy, Tape
from tests.services.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.records import Role
    from diffuse_core.model_ports import Executor, StageResult, StageStep
    from diffuse_core.ports import Carrier, Channel, Transport
    from tests.services.tiny_model import TinyModel

PLACE = "127.0.0.1"
NETWORK = "test"
KEY = random.Random(3).randbytes(32)
HALF = 5


class UnsealedChannel:
    """What a careless relayed channel would be: frames go to the sentinel as they are."""

    def __init__(self, carrier: Carrier, remote: Any) -> None:
        self._carrier = carrier
        self.remote = remote
        self.remote_address = carrier.remote_address
        self.relayed_through = carrier.relayed_through
        self.send = carrier.send
        self.receive = carrier.receive
        self.close = carrier.close


class SealedTown(Cluster):
    """The network. `careless` leaves out the seals inside circuits, so that tests can fail."""

    def __init__(
        self, stack: AsyncExitStack, model: TinyModel, directory: Path, *, careless: bool = False
    ) -> None:
        super().__init__(stack, model, directory, sockets=True)
        self.careless = careless
        self.seen, self.wire, self.said = Tape(), Tape(), Tape()
        self.secrets: dict[str, bytes] = {"network key": KEY}
        self.hidden: list[bytes] = []
        self.sessions: set[bytes] = set()

    def identity(self) -> Identity:
        """Somebody new, whose seed is nothing that is there by chance."""
        return Identity(random.Random(next(self.seeds)).randbytes(32))

    def transport(self, identity: Identity) -> Transport:
        """What a client or an owner talks through."""
        return CircuitTransport(self._direct(identity, relayed=self.said), identity.node)

    def _direct(self, identity: Identity, **tapes: Tape) -> RecordedTransport:
        real = WebSocketTransport(identity, NETWORK, KEY)
        name = f"{identity.node.hex()[:8]}"
        self.secrets[f"seed of {name}"] = identity.seed
        self.secrets[f"static key of {name}"] = real._credentials.static
        seal = real.secure

        async def secure(
            carrier: Carrier, expected: Any, within: float, *, dialled: bool
        ) -> Channel:
            if self.careless:
                return UnsealedChannel(carrier, expected)
            channel: Any = await seal(carrier, expected, within, dialled=dialled)
            at = len(self.secrets)
            self.secrets[f"key {at} of a circuit"] = channel._stream._sending._key
            return channel

        real.secure = secure  # type: ignore[method-assign]
        return RecordedTransport(real, **tapes)

    async def start_node(self, role: Role, *, relayed: bool = True) -> tuple[Node, str]:
        """Start a node; all but the sentinel are met through it, whatever is asked."""
        identity = self.identity()
        if role == "sentinel":
            return await self._start_sentinel(identity)
        transport = self.transport(identity)
        assert isinstance(transport, CircuitTransport)
        node = self._node(identity, transport, role)
        transport.addresses = node.sentinel_addresses
        address = await node.start(PLACE, 0, self.bootstrap, ())
        rng = random.Random(1)
        relays = Reservations(
            node,
            transport.base,
            lambda: sentinels(node, node.id, node.discovery.reached()),
            rng,
        )
        reachability = Reachability(node, "always", relays, rng)
        relays.on_change = reachability.changed
        self.stack.push_async_callback(relays.close)
        self.stack.push_async_callback(reachability.close)
        reachability.start(int(address.rpartition(":")[2]), ())
        return node, address

    async def _start_sentinel(self, identity: Identity) -> tuple[Node, str]:
        proxy = await self.stack.enter_async_context(RecordingProxy(self.wire))
        node = self._node(identity, self._direct(identity, direct=self.seen), "sentinel")
        relay = RelayService(node, random.Random(2))
        self.stack.push_async_callback(relay.close)
        proxy.lead_to(await node.start(PLACE, 0, (), (proxy.address,)))
        relay.start()
        return node, proxy.address

    def _node(self, identity: Identity, transport: Transport, role: Role) -> Node:
        chance = random.Random(identity.node)
        node = Node(identity, transport, SystemClock(), chance, role=role, version="test")
        self.stack.push_async_callback(node.stop)
        self.nodes.append(node)
        return node

    def load(self, *given: Any) -> Executor:
        """Load a slice whose hidden states and sessions are noted."""
        executor = load_slice(*given)
        run = executor.run

        def noted(steps: Sequence[StageStep]) -> list[Any]:
            results: list[StageResult | Any] = run(steps)
            self.sessions.update(step.session for step in steps)
            states = (getattr(result, "hidden", None) for result in results)
            self.hidden += [bytes(state.data) for state in states if state is not None]
            return results

        executor.run = noted  # type: ignore[method-assign]
        return executor

    async def ask(self, prompt: str, tokens: int) -> tuple[str, tuple[int, ...]]:
        """Have both halves answer a client, everything through the sentinel."""
        for _ in range(2):
            await self.host(HALF, load=self.load)
        client = await self.client()
        request = GenerateRequest(model="tiny", raw=prompt, max_tokens=tokens, ignore_eos=True)
        text, answer, finished = await client.whole(request)
        assert {step.via for step in finished.route} == {"relay"}
        assert len(finished.route) == 2
        return text, answer
