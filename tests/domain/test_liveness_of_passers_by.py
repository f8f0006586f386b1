"""Nodes that come and go by the thousand: what is kept for probing stays as small as the rest."""

from __future__ import annotations

import random

from domain_samples import ordered

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.liveness import FailureDetector


def test_forgotten_nodes_leave_nothing_behind_in_the_round_of_probes() -> None:
    detector = FailureDetector(ordered(0), random.Random(1))
    for number in range(3):
        detector.alive(ordered(1 + number), 0.0)
    for number in range(3000):
        passing = NodeId(number.to_bytes(32, "little"))
        detector.alive(passing, 0.0)
        detector.forget(passing)
    assert len(detector._round) <= 2 * 4
    detector.tick(5.0)
    assert detector.drain(), "those that stayed are probed as before"
