"""Addresses that the user gave, and the last relay that is lost: what the owner is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain import reachability as rules
from diffuse_core.domain import reservations as plan
from diffuse_core.domain.relayed_address import RelayedAddress, is_relayed
from diffuse_core.services import reachability, reservations
from tests.services.reached import LOOPBACK, Member, Reached, Walled
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

NOWHERE = f"{LOOPBACK}:9"
"""A port that nobody forwards."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reachability, reservations):
        monkeypatch.setattr(module, "LOOK_S", 0.02)
    monkeypatch.setattr(reachability, "MET_S", 0.2)
    monkeypatch.setattr(reachability, "NO_RELAY_S", 0.05)
    monkeypatch.setattr(rules, "FIRST_S", 0.02)
    monkeypatch.setattr(plan, "REST_S", 0.02)


@pytest.fixture
def town(stack: AsyncExitStack) -> Reached:
    return Reached(stack)


def notes(member: Member) -> list[tuple[str, str]]:
    """Level and text of what the owner was told of sentinels, but for those who came."""
    told = [(event.level, event.text) for event in member.node.events]
    words = ("through sentinel", "no sentinel", "could not dial")
    return [one for one in told if any(word in one[1] for word in words)]


def name(member: Member) -> str:
    return member.node.id.hex()[:8]


async def test_a_public_address_that_leads_nowhere_is_told_and_relayed(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start(own=(NOWHERE,), named=True)
    await until(lambda: host.relays.addresses())
    await until(lambda: notes(host))
    await until(lambda: len(host.told(sentinel.node)) == 2)
    direct, relayed = host.node.addresses(host.node.id)
    assert direct == NOWHERE
    assert is_relayed(relayed)
    ((level, text),) = notes(host)
    assert level == "warning"
    assert text == (
        f"sentinel {name(sentinel)} could not dial {NOWHERE}; check that port 9 is forwarded to "
        f"this machine; others are told {NOWHERE} first, and reach it through sentinel "
        f"{name(sentinel)} meanwhile"
    )


async def test_a_public_address_that_works_is_told_alone(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start(own=("host.example.org",), named=True)
    await until(lambda: host.reachability.verdict.reached)
    own = host.node.addresses(host.node.id)
    await until(lambda: host.told(sentinel.node) == own)
    assert [at.partition(":")[0] for at in own] == ["host.example.org"]
    assert notes(host) == []


@pytest.mark.parametrize("role", ["host", "sentinel"])
async def test_who_is_never_relayed_is_only_warned(town: Reached, role: str) -> None:
    await town.sentinel()
    mode = "never" if role == "host" else "auto"
    host = await town.start(role, mode, own=(NOWHERE,), named=True)
    await until(lambda: notes(host))
    ((level, text),) = notes(host)
    assert level == "warning"
    assert "check that port 9 is forwarded" in text
    assert text.endswith(f"others are told {NOWHERE} all the same")
    assert host.node.addresses(host.node.id) == (NOWHERE,)


@pytest.mark.parametrize("mode", ["auto", "always"])
async def test_the_last_relay_that_is_lost_is_told(town: Reached, mode: str) -> None:
    sentinel = await town.sentinel()
    host = await town.start(mode=mode, kind=Walled)
    await until(lambda: len(notes(host)) == 1)
    await sentinel.node.stop()
    await until(lambda: len(notes(host)) == 2)
    assert notes(host)[1] == ("warning", reachability.NO_RELAY)


class Relays:
    """Reservations as the test has them."""

    def __init__(self) -> None:
        self.now: tuple[str, ...] = ()

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def addresses(self) -> tuple[str, ...]:
        return self.now


async def test_to_be_met_again_is_told_and_what_comes_and_goes_only_now_and_then(
    town: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await town.start(mode="always")
    relays = Relays()
    host.reachability._relays = relays
    await until(lambda: notes(host) == [("warning", reachability.NO_RELAY)])
    again = ("good", f"reachable through sentinel {name(host)} again")
    relays.now = (str(RelayedAddress(host.node.id, "192.0.2.1:1")),)
    await until(lambda: notes(host)[1:] == [again])
    relays.now = ()
    await until(lambda: host.reachability._hidden_since is not None)
    since = host.node.clock.monotonic()
    await until(lambda: host.node.clock.monotonic() > since + 3 * reachability.NO_RELAY_S)
    assert len(notes(host)) == 2
    monkeypatch.setattr(reachability, "QUIET_S", 0.0)
    await until(lambda: notes(host)[2:] == [("warning", reachability.NO_RELAY)])
