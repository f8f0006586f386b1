"""What a sentinel gives to nodes that it relays for, by options."""

from __future__ import annotations

from typing import Any

import pytest

from diffuse_core.adapters.websocket_transport.gate import MAX_CONNECTIONS
from diffuse_core.cli import nodes
from diffuse_core.cli.relay_limits import relay_limits
from diffuse_core.domain.relay import RelayLimits
from diffuse_core.errors import UsageError

OPTIONS = (
    *("max_nodes", "max_circuits", "max_circuits_to", "max_circuits_from"),
    *("bandwidth", "bandwidth_per_node"),
)


def limits(**given: Any) -> RelayLimits:
    return relay_limits({**dict.fromkeys(OPTIONS), **given}, MAX_CONNECTIONS)


def test_without_options_they_are_the_usual_ones() -> None:
    assert limits() == RelayLimits()


def test_each_option_counts() -> None:
    assert limits(
        max_nodes=10,
        max_circuits=20,
        max_circuits_to=5,
        max_circuits_from=6,
        bandwidth="8MiB",
        bandwidth_per_node="2MiB",
    ) == RelayLimits(
        reservations=10,
        circuits=20,
        circuits_per_target=5,
        circuits_per_source=6,
        total_bytes_per_s=8 * 2**20,
        node_bytes_per_s=2 * 2**20,
    )


def test_what_is_left_out_fits_what_is_given() -> None:
    small = limits(max_circuits=4, bandwidth="1MiB")
    assert (small.circuits_per_target, small.circuits_per_source) == (4, 4)
    assert small.node_bytes_per_s == 2**20


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_circuits": 4, "max_circuits_to": 5}, "--max-circuits-to 5 is more than --max-c"),
        ({"max_circuits_from": 97}, "--max-circuits-from 97 is more than --max-circuits 96"),
        ({"bandwidth_per_node": "33MiB"}, "--bandwidth-per-node 33.0 MiB is more than --bandwid"),
        ({"max_nodes": 300}, "take 492 connections, two for each circuit, and a sentinel has 448"),
        ({"max_circuits": 200}, "run a second sentinel"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        limits(**given)
    assert words in str(refused.value)


def test_the_command_gives_them_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def check(options: Any) -> None:
        found.append(options.relay_limits)
        raise UsageError("enough")

    monkeypatch.setattr(nodes, "_check_first", check)
    with pytest.raises(UsageError, match="enough"):
        nodes.sentinel.main(["--max-nodes", "7"], standalone_mode=False)
    assert found == [RelayLimits(reservations=7)]
