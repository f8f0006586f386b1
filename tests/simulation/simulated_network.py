"""A network of real gossip state machines under a virtual clock, seeded, on one thread.

Messages travel encoded as on the wire, through a weather of delays, losses, copies and cuts. A
killed node refuses (its machine lives on) or is silent (its machine is gone); a paused one
processes nothing and finds its mail when it goes on; a restarted one has its key and no memory.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import msgspec
from deliveries import Trace, Traffic
from simulated_node import Letter, SimulatedNode, build_gossip, encoder
from virtual_time import VirtualTime
from weather import Weather

from diffuse_core.domain.identity import Identity, NodeId, short_text
from diffuse_core.domain.messages import GossipMessage, Pull, Push, Rumour
from diffuse_core.domain.records import Record, SignedRecord
from diffuse_core.domain.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated_node import Liar
    from weather import Delay

    from diffuse_core.domain.members import Member

BOOT_MS = 1_700_000_000_000
"""The wall clock of the world when the simulation starts."""
WAKE_LATE_S = 1e-6
SHARED_VERDICTS = 100_000
"""All nodes share what is known of records' contents: in one process a check is made once."""
MAX_MAIL = 20_000
"""What the kernel keeps for a process that does not read."""


class SimulatedNetwork:
    """Nodes 0..n-1; times in virtual seconds. `shared` goes to every Gossip that takes it."""

    def __init__(
        self,
        seed: int,
        *,
        loss: float = 0.0,
        delay: tuple[float, float] | Delay = (0.001, 0.01),
        shared: dict[str, Any] | None = None,
        **weather: float,
    ) -> None:
        self.rng = random.Random(seed)
        self.weather = Weather(self.rng, loss=loss, delay=delay, **weather)
        self.time = VirtualTime()
        self.nodes: list[SimulatedNode] = []
        self.by_id: dict[NodeId, SimulatedNode] = {}
        self.silent: set[NodeId] = set()
        """Ids that belong to nobody, at addresses where nothing answers; others refuse."""
        self.traffic = Traffic()
        self.on_event: Callable[[SimulatedNode, str], None] | None = None
        """Told of every event instead of the nodes' own lists, which grow without bound."""
        self.malformed = 0
        """Messages that did not decode, and so never reached a state machine."""
        self._shared = {"verdicts": Verdicts(SHARED_VERDICTS)} | (shared or {})
        self._trace = Trace()
        self._last: tuple[GossipMessage | None, Letter | None] = (None, None)

    # --- building ------------------------------------------------------------------------

    def add(
        self,
        *,
        via: int | None = None,
        seed: int | None = None,
        boot_ms: int | None = None,
        liar: Liar | None = None,
        record: dict[str, Any] | None = None,
        **habits: float,
    ) -> int:
        """Start a node, joining through node `via`; returns its number.

        `habits` are fields of SimulatedNode: `slowness`, `drift`, `wall_offset`.
        """
        number = len(self.nodes)
        identity = Identity((seed if seed is not None else number).to_bytes(32, "big"))
        if boot_ms is None:
            boot_ms = BOOT_MS + int((self.now + habits.get("wall_offset", 0.0)) * 1000)
        node = SimulatedNode(number, identity, self._gossip(identity, boot_ms), **habits)
        node.clock_offset = self.rng.uniform(0, 1e6)
        node.liar = liar
        self.nodes.append(node)
        self.by_id[identity.node] = node
        self.say(number, **(record or {}))
        if via is not None:
            node.gossip.pull_from(self.nodes[via].id)
        self.after(node)
        return number

    def _gossip(self, identity: Identity, boot_ms: int) -> Any:
        rng = random.Random(self.rng.random())
        return build_gossip(identity, rng, boot_ms, **self._shared)

    def say(self, number: int, **changes: Any) -> None:
        """Publish a record."""
        node = self.nodes[number]
        fields = {"node": b"\0" * 32, "sequence": 0, "role": "host", "version": "0"} | changes
        node.gossip.set_record(Record(**fields), node.local(self.now))
        self.after(node)

    # --- mishaps -------------------------------------------------------------------------

    def kill(self, number: int, *, silent: bool = False) -> None:
        """End the process; with its machine when `silent`."""
        node = self.nodes[number]
        node.running, node.refuses = False, not silent
        node.mail.clear()

    def restart(self, number: int, *, via: int, boot_ms: int | None = None) -> None:
        """A new process with the old key and no memory, under the same number.

        Its boot time is what its wall clock says, unless `boot_ms` is given.
        """
        node = self.nodes[number]
        if boot_ms is None:
            boot_ms = BOOT_MS + int((self.now + node.wall_offset) * 1000)
        node.gossip = self._gossip(node.identity, boot_ms)
        node.running, node.refuses, node.paused_until = True, False, 0.0
        node.wake_at = math.inf
        node.life += 1
        node.clock_offset = self.rng.uniform(0, 1e6)
        self.by_id[node.id] = node
        self.say(number)
        node.gossip.pull_from(self.nodes[via].id)
        self.after(node)

    def pause(self, number: int, seconds: float) -> None:
        """Stop the process for a while (SIGSTOP); its mail waits."""
        node = self.nodes[number]
        node.paused_until = max(node.paused_until, self.now + seconds)
        self.time.put(node.paused_until, self._wake, node, node.life)

    def leave(self, number: int) -> None:
        """Farewell, then the process ends."""
        node = self.nodes[number]
        node.gossip.leave(node.local(self.now))
        self.after(node)
        node.running, node.refuses = False, True

    def part(self, left: set[int], right: set[int]) -> None:
        """Cut every link between the two sets of nodes, until `cut` is cleared."""
        for one, other in itertools.product(left, right):
            self.cut.add(frozenset((self.nodes[one].id, self.nodes[other].id)))

    @property
    def cut(self) -> set[frozenset[NodeId]]:
        """Pairs of nodes between which nothing passes."""
        return self.weather.cut

    # --- running -------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.time.now

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at the virtual time `when`, between deliveries."""
        self.time.put(when, _act, act)

    def run(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        self.time.run_until(self.now + seconds)

    # --- looking -------------------------------------------------------------------------

    def members(self, number: int) -> tuple[Member, ...]:
        """All that a node knows, itself included."""
        node = self.nodes[number]
        return node.gossip.members(node.local(self.now))

    def knows(self, number: int) -> dict[str, str]:
        """What a node believes: short id to liveness."""
        return {short_text(member.record.node): member.liveness for member in self.members(number)}

    def look(self, number: int) -> tuple[list[SignedRecord], list[Rumour]]:
        """What a stranger that pulls from a node is pushed."""
        node = self.nodes[number]
        stranger = Identity(b"s" * 32).node
        node.gossip.receive(stranger, Pull(), node.local(self.now))
        pushes = [
            message
            for receiver, message in node.gossip.drain()
            if receiver == stranger and isinstance(message, Push)
        ]
        assert [push.last for push in pushes] == [False] * (len(pushes) - 1) + [True]
        return (
            [one for push in pushes for one in push.records],
            [one for push in pushes for one in push.rumours],
        )

    def living(self) -> list[int]:
        return [number for number, node in enumerate(self.nodes) if node.running]

    def believers(self, about: int, liveness: str) -> int:
        """How many running nodes believe that of `about`."""
        name = self.name(about)
        return sum(
            self.knows(number).get(name) == liveness for number in self.living() if number != about
        )

    def name(self, number: int) -> str:
        return short_text(self.nodes[number].id)

    def told(self, words: str) -> list[tuple[float, str]]:
        return [event for node in self.nodes for event in node.events if words in event[1]]

    @property
    def bytes_sent(self) -> int:
        """Bytes of messages, without framing."""
        return self.traffic.sizes.total()

    @property
    def messages_sent(self) -> int:
        return self.traffic.messages.total()

    @property
    def trace(self) -> str:
        """A hash over everything delivered, in order."""
        return self._trace.digest

    # --- the machinery -------------------------------------------------------------------

    def after(self, node: SimulatedNode) -> None:
        """What a pump does after each call: send, note events, sleep until the deadline."""
        gossip = node.gossip
        for receiver, message in gossip.drain():
            self.send(node, receiver, message)
        events = gossip.drain_events()
        if events and self.on_event is not None:
            for _, text in events:
                self.on_event(node, text)
        elif events:
            node.events.extend((self.now, text) for _, text in events)
        wake_at = gossip.next_deadline()
        if wake_at < math.inf:
            wake_at = max(node.virtual(wake_at) + WAKE_LATE_S, self.now)
            # A later deadline is found out when the earlier one comes.
            if wake_at < node.wake_at and node.running:
                node.wake_at = wake_at
                self.time.put(wake_at, self._wake, node, node.life)

    def send(self, sender: SimulatedNode, receiver: NodeId, message: GossipMessage) -> None:
        """Put a message of `sender` on its way, whoever wrote it."""
        last, letter = self._last
        if last is not message or letter is None or letter.sender is not sender:
            letter = Letter(sender, encoder.encode(message), type(message).__name__)
            self._last = (message, letter)
        self.post(receiver, letter)

    def post(self, receiver: NodeId, letter: Letter) -> None:
        """Put a letter on its way; the same one may go to many."""
        self.traffic.sent(letter.kind, len(letter.data))
        target = self.by_id.get(receiver)
        if target is None or not target.running:
            self._to_nobody(letter.sender, receiver, target)
            return
        now = self.time.now
        for delay in self.weather.fate(letter.sender.identity.node, receiver):
            self.time.put(now + delay, self._deliver, target, letter)

    def _to_nobody(
        self, sender: SimulatedNode, receiver: NodeId, target: SimulatedNode | None
    ) -> None:
        silent = receiver in self.silent if target is None else not target.refuses
        arrives = self.weather.fate(sender.id, receiver)
        if not silent and arrives:
            self.time.put(self.now + arrives[0], self._refuse, sender, receiver)

    def _refuse(self, sender: SimulatedNode, receiver: NodeId, _: Any) -> None:
        target = self.by_id.get(receiver)
        if sender.running and not (target and target.running):
            sender.gossip.unreachable(receiver, sender.local(self.now))
            self.after(sender)

    def _deliver(self, node: SimulatedNode, letter: Letter, _: Any) -> None:
        if not node.slowness:
            self._process(node, letter, None)
            return
        cost = self.rng.expovariate(1 / node.slowness)
        node.busy_until = max(self.now, node.busy_until) + cost
        self.time.put(node.busy_until, self._process, node, letter)

    def _process(self, node: SimulatedNode, letter: Letter, _: Any) -> None:
        if self.time.now < node.paused_until:
            if len(node.mail) < MAX_MAIL:
                node.mail.append(letter)
        elif node.running:
            self._hand_over(node, letter)
            self.after(node)

    def _hand_over(self, node: SimulatedNode, letter: Letter) -> None:
        now = self.time.now
        sender = letter.sender
        self._trace.delivery(now, sender.number, node.number, letter.data)
        try:
            message = letter.read()
        except msgspec.ValidationError:
            self.malformed += 1  # a real node closes the channel
            return
        if node.liar is None or node.liar.hears(self, node, letter):
            node.gossip.receive(sender.identity.node, message, node.local(now))

    def _wake(self, node: SimulatedNode, life: int, _: Any) -> None:
        now = self.time.now
        if not node.running or life != node.life or now < node.paused_until:
            return
        if node.mail:
            mail, node.mail = node.mail, []
            for letter in mail:
                self._hand_over(node, letter)
        if now >= node.wake_at or node.paused_until:
            node.wake_at = math.inf
            node.paused_until = 0.0
        local = node.local(now)
        if node.gossip.next_deadline() <= local:
            node.gossip.tick(local)
        self.after(node)


def _act(act: Callable[[], None], _: Any, __: Any) -> None:
    act()
