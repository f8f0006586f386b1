"""Two replicas of each stage do almost twice the work of one, whoever's sessions it is."""

from __future__ import annotations

import statistics

import pytest
from replica_network import STEP_S, ReplicaNetwork

SECONDS = 60.0


def _ratio(seed: int, clients: int, sessions_each: int) -> float:
    one, two = (
        ReplicaNetwork(
            seed, replicas=replicas, clients=clients, sessions_each=sessions_each
        ).throughput(SECONDS)
        for replicas in (1, 2)
    )
    assert one <= 1.001 / STEP_S
    return two / one


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("sessions", [8, 16])
def test_the_sessions_of_one_client(sessions: int, seed: int) -> None:
    assert _ratio(seed, 1, sessions) >= 1.7


@pytest.mark.parametrize(("clients", "least"), [(8, 1.5), (16, 1.8), (32, 1.9)])
def test_the_sessions_of_many_clients_that_know_nothing_of_each_other(
    clients: int, least: float
) -> None:
    """Of each other's newest sessions, that is: few then are unevenly spread now and then."""
    assert statistics.mean(_ratio(seed, clients, 1) for seed in range(4)) >= least


@pytest.mark.parametrize("sessions", [8, 16])
def test_one_client_places_its_sessions_evenly_though_records_are_old(sessions: int) -> None:
    for seed in range(5):
        net = ReplicaNetwork(seed, replicas=2, clients=1, sessions_each=sessions)
        net.time.run_until(0.1)
        assert {host.sessions for host in net.hosts.values()} == {sessions // 2}
