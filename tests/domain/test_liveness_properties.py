"""Whatever arrives: nothing raises, nothing grows, and who answers every ping never dies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from domain_samples import ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.health import MAX_HEALTH
from diffuse_core.domain.liveness import FailureDetector
from diffuse_core.domain.messages import Ping, PingRequest
from diffuse_core.domain.probes import MAX_PROBES, MAX_RELAYS

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

ME = ordered(255)
NODES = [ordered(number) for number in range(40)]
node = st.sampled_from(NODES)
nonce = st.integers(0, 2**32 - 1)
step = st.one_of(
    st.tuples(st.just("alive"), node),
    st.tuples(st.just("forget"), node),
    st.tuples(st.just("heard"), node),
    st.tuples(st.just("probe"), node),
    st.tuples(st.just("accuse"), node, node, st.booleans()),
    st.tuples(st.just("unreachable"), node),
    st.tuples(st.just("relay"), node, nonce, node),
    st.tuples(st.just("ack"), node, nonce),
    st.tuples(st.just("answer"), node),
    st.tuples(st.just("ail")),
    st.tuples(st.just("tick")),
)
steps = st.lists(st.tuples(st.floats(0.0, 3.0), step), max_size=150)
members = st.integers(0, len(NODES))


class _Play:
    """Takes steps at rising times, and notes what the detector sent."""

    def __init__(self, count: int) -> None:
        self.detector = FailureDetector(ME, random.Random(1))
        self.now = 0.0
        self.asked: dict[NodeId, int] = {}
        for one in NODES[:count]:
            self.detector.alive(one, 0.0)

    def take(self, pause: float, what: tuple[Any, ...]) -> None:
        self.now += pause
        kind, *given = what
        if kind == "answer":
            self.detector.ack(given[0], self.asked.get(given[0], 0), self.now)
        elif kind == "accuse":
            self.detector.accuse(given[0], given[1], self.now, dead=given[2])
        elif kind in ("forget", "ail"):
            getattr(self.detector, kind)(*given)
        else:
            getattr(self.detector, kind)(*given, self.now)
        for to, message in self.detector.drain():
            if isinstance(message, Ping | PingRequest):
                self.asked[to] = message.nonce


@settings(deadline=None)
@given(members, steps)
def test_nothing_raises_and_nothing_grows(count: int, taken: list[Any]) -> None:
    play = _Play(count)
    for pause, what in taken:
        play.take(pause, what)
        detector = play.detector
        known = [one for one in NODES if detector.heard_at(one) > -1]
        alive = {one for one in known if detector.state(one) != "dead"}
        assert set(detector.sample_live(99)) == alive
        assert detector.live_count() == len(alive)
        assert set(detector.sample_live(3)) <= alive
        assert 0 <= detector.health <= MAX_HEALTH
        assert len(detector.probes._probes) <= MAX_PROBES
        assert len(detector.probes._by_nonce) <= 2 * len(detector.probes._probes)
        assert len(detector._relays._relays) <= MAX_RELAYS
        assert set(detector._suspects._at) == {
            one for one in known if detector._known[one].suspicion is not None
        }
        assert set(detector.probes._probes) <= set(known)


@settings(deadline=None)
@given(members, steps)
def test_a_deadline_that_passed_is_done_with(count: int, taken: list[Any]) -> None:
    play = _Play(count)
    for pause, what in taken:
        play.take(pause, what)
    for _ in range(50):
        due = play.detector.next_deadline()
        if due > play.now + 60:
            break
        play.now = max(play.now, due)
        play.detector.tick(play.now)
        play.detector.drain()
        assert play.detector.next_deadline() > play.now - 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(2, len(NODES)), steps, st.integers(0, 2**16))
def test_who_answers_every_ping_never_dies(count: int, taken: list[Any], seed: int) -> None:
    """Liars accuse it, others fall silent around it, refusals are claimed: it lives."""
    detector, rng, now = FailureDetector(ME, random.Random(seed)), random.Random(seed), 0.0
    for one in NODES[:count]:
        detector.alive(one, now)
    honest = NODES[0]
    for pause, what in taken:
        end = now + pause
        while (due := max(now, detector.next_deadline())) <= end:
            now = due
            detector.tick(now)
            _answer(detector, honest, rng, now)
        now = end
        kind, *given = what
        if kind == "accuse":
            detector.accuse(honest, given[1], now, dead=given[2])
        elif kind in ("heard", "alive", "probe") and given[0] != honest:
            getattr(detector, kind)(*given, now)
        elif kind == "ack":
            detector.ack(*given, now)
        _answer(detector, honest, rng, now)
        assert detector.state(honest) != "dead"


def _answer(detector: FailureDetector, honest: NodeId, rng: random.Random, now: float) -> None:
    for to, message in detector.drain():
        if to == honest and isinstance(message, Ping):
            detector.ack(honest, message.nonce, now + rng.uniform(0.0, 0.05))
