"""Nodes over sockets find out whether they can be dialled, and are met all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.websocket_transport import WebSocketTransport
from diffuse_core.domain import reachability as rules
from diffuse_core.domain import reservations as plan
from diffuse_core.domain.reachability import Verdict
from diffuse_core.domain.relay_messages import AskDialBack, DialledBack
from diffuse_core.domain.relayed_address import is_relayed, parse_relayed
from diffuse_core.services import reachability, reservations
from tests.services.reached import LOOPBACK, Member, Reached, Walled
from tests.services.waiting import until

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.services.links import Link

ELSEWHERE = "192.0.2.7"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reachability, reservations):
        monkeypatch.setattr(module, "LOOK_S", 0.02)
    monkeypatch.setattr(reachability, "MET_S", 0.2)
    monkeypatch.setattr(rules, "FIRST_S", 0.02)
    monkeypatch.setattr(plan, "REST_S", 0.02)


@pytest.fixture
def town(stack: AsyncExitStack) -> Reached:
    return Reached(stack)


def through(member: Member) -> set[bytes]:
    """The sentinels through which a node says that it is met."""
    told = map(parse_relayed, member.node.addresses(member.node.id))
    return {address.sentinel for address in told if address is not None}


def notes(member: Member) -> list[tuple[str, str]]:
    """Level and text of what the owner was told, but for who came and went.

    Nor that the bootstrap address is tried in vain, when a test takes long.
    """
    told = [
        (event.level, event.text)
        for event in member.node.events
        if not event.text.startswith("bootstrap ")
    ]
    return [one for one in told if not one[1].endswith((" left", " sentinel", " host"))]


def liveness(viewer: Member, of: Member) -> str:
    found = (m for m in viewer.node.members() if m.record.node == of.node.id)
    return next((member.liveness for member in found), "unknown")


async def test_a_node_on_loopback_is_reached_and_nobody_is_told_anything(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start()
    await until(lambda: host.reachability.verdict.reached)
    assert host.reachability.verdict == Verdict((host.address,))
    assert host.node.addresses(host.node.id) == (host.address,)
    await until(lambda: host.told(sentinel.node) == (host.address,))
    assert notes(host) == notes(sentinel) == []
    assert not host.relays.addresses()
    # A sentinel alone has nobody to ask.
    assert sentinel.reachability.verdict == Verdict()


async def test_the_observed_address_is_told_where_a_node_knew_no_better(town: Reached) -> None:
    sentinel = await town.sentinel()
    # Of loopback others learn only where there is nothing else; so it is all this node has.
    host = await town.start(own=())
    await until(lambda: host.told(sentinel.node) == (host.address,))
    assert notes(host) == [("info", f"others reach this node at {host.address}")]


async def test_who_cannot_be_dialled_is_met_through_a_sentinel(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start(kind=Walled)
    other = await town.start()
    await until(lambda: through(host) == {sentinel.node.id})
    assert host.reachability.verdict == Verdict((), ((sentinel.node.id, host.address),))
    own = host.node.addresses(host.node.id)
    assert own[0] == host.address
    assert is_relayed(own[1])
    assert len(own) == 2
    await until(lambda: host.told(other.node) == own)
    ((level, text),) = notes(host)
    assert level == "info"
    assert f"tried {host.address}" in text
    assert f"reachable through sentinel {sentinel.node.id.hex()[:8]}" in text
    assert "--public-addr" in text
    link = await other.node.links.dial(own[1], host.node.id)
    assert link.relayed_through == sentinel.node.id
    await until(lambda: liveness(other, host) == liveness(sentinel, host) == "alive")
    view = next(node for node in other.node.view().nodes if node.node == host.node.id.hex())
    assert view.addresses == (host.address,)
    assert view.relays == (sentinel.node.id.hex(),)


async def test_two_that_cannot_be_dialled_meet(town: Reached) -> None:
    await town.sentinel()
    one, two = await town.start(kind=Walled), await town.start(kind=Walled)
    await until(lambda: through(one) and through(two))
    await until(lambda: any(map(is_relayed, two.told(one.node))))
    link = await one.node.links.to(two.node.id, two.told(one.node))
    assert link.relayed_through is not None
    await until(lambda: liveness(one, two) == liveness(two, one) == "alive")


async def test_addresses_follow_the_sentinels(town: Reached) -> None:
    first, second = await town.sentinel(), await town.sentinel()
    both = {first.node.id, second.node.id}
    host = await town.start(kind=Walled)
    await until(lambda: through(host) == both)
    await first.node.stop()
    await until(lambda: through(host) == {second.node.id})
    await until(lambda: not any(first.node.id.hex() in at for at in host.told(second.node)))
    third = await town.sentinel()
    host.node.discovery.add("remembered", (third.address,), third.node.id)
    await until(lambda: through(host) == {second.node.id, third.node.id})
    assert len(notes(host)) == 1


async def test_always_relayed_says_nothing_of_its_own_addresses(town: Reached) -> None:
    asked: list[Link] = []
    sentinel = await town.sentinel(honest=False)

    async def ask(link: Link, _message: AskDialBack, _body: memoryview) -> None:
        asked.append(link)

    sentinel.node.links.handle(AskDialBack, ask)
    host = await town.start(mode="always")
    assert host.node.addresses(host.node.id) == ()
    await until(lambda: through(host) == {sentinel.node.id})
    assert all(map(is_relayed, host.node.addresses(host.node.id)))
    await until(lambda: host.told(sentinel.node) == host.node.addresses(host.node.id))
    assert notes(host) == [("info", f"reachable through sentinel {sentinel.node.id.hex()[:8]}")]
    assert asked == []


async def test_always_without_a_sentinel_is_told_and_tried_on(
    town: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "NO_RELAY_S", 0.05)
    plain = await town.start()
    town.bootstrap = (plain.address,)
    host = await town.start(mode="always")
    await until(lambda: notes(host))
    ((level, text),) = notes(host)
    assert level == "warning"
    assert text.startswith("no sentinel relays for it now; trying on; start one with `diffuse ")
    assert host.node.addresses(host.node.id) == ()
    sentinel = await town.sentinel()
    host.node.discovery.add("remembered", (sentinel.address,), sentinel.node.id)
    await until(lambda: through(host) == {sentinel.node.id})
    await until(lambda: "reachable through" in notes(host)[-1][1])
    assert notes(host)[-1][1].endswith(" again")


async def test_never_relayed_changes_nothing_and_is_told(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start(mode="never", kind=Walled)
    await until(lambda: notes(host))
    await until(lambda: host.told(sentinel.node) == (host.address,))
    assert host.node.addresses(host.node.id) == (host.address,)
    ((level, text),) = notes(host)
    assert level == "warning"
    assert "nobody outside can dial this machine" in text
    assert "--relay never" in text
    assert not host.relays.addresses()
    reached = await town.start(mode="never", own=("host.example.org",))
    await until(lambda: reached.reachability.verdict.reached)
    await until(lambda: reached.told(sentinel.node))
    assert all("host.example.org" in at for at in reached.node.addresses(reached.node.id))
    assert notes(reached) == []


async def test_a_sentinel_asks_others_and_is_never_relayed(town: Reached) -> None:
    first = await town.sentinel()
    second = await town.start("sentinel", kind=Walled)
    await until(lambda: second.reachability.verdict.unreached)
    assert second.node.addresses(second.node.id) == (second.address,)
    assert second.reachability.verdict.unreached[0][0] == first.node.id
    await until(lambda: notes(second))
    assert [level for level, _ in notes(second)] == ["warning"]
    assert "as a sentinel it is of no use" in notes(second)[0][1]


def lying(sentinel: Member, **lie: object) -> None:
    """Let a sentinel answer without dialling anybody."""

    async def answer(link: Link, message: AskDialBack, _body: memoryview) -> None:
        told = {"reached": False, "address": f"{LOOPBACK}:{message.port}"} | lie
        told["address"] = str(told["address"]).format(port=message.port)
        await link.send(DialledBack(message.nonce, **told))

    sentinel.node.links.handle(AskDialBack, answer)


async def test_a_sentinel_that_only_says_that_it_came_in_is_not_believed(town: Reached) -> None:
    liar = await town.sentinel(honest=False)
    lying(liar, reached=True, address=ELSEWHERE + ":{port}")
    honest = await town.sentinel()
    host = await town.start(kind=Walled)
    await until(lambda: host.reachability.verdict.unreached)
    assert host.reachability.verdict == Verdict((), ((honest.node.id, host.address),))
    assert not any(ELSEWHERE in at for at in host.node.addresses(host.node.id))


async def test_links_that_we_open_ourselves_prove_nothing(town: Reached) -> None:
    liar = await town.sentinel(honest=False)
    asked: list[tuple[Link, AskDialBack]] = []

    async def keep(link: Link, message: AskDialBack, _body: memoryview) -> None:
        asked.append((link, message))

    liar.node.links.handle(AskDialBack, keep)
    host = await town.start(kind=Walled)
    await until(lambda: asked)
    await host.node.links.dial(liar.address, liar.node.id)
    link, message = asked[0]
    await link.send(DialledBack(message.nonce, True, host.address))
    await until(lambda: not host.reachability._answers)
    assert host.reachability.verdict == Verdict()


async def test_a_sentinel_that_denies_is_overruled_by_one_that_came_in(town: Reached) -> None:
    liar = await town.sentinel(honest=False)
    lying(liar)
    await town.sentinel()
    host = await town.start()
    await until(lambda: host.reachability.verdict.reached)
    assert host.reachability.verdict == Verdict((host.address,))
    assert host.node.addresses(host.node.id) == (host.address,)
    assert not host.relays.addresses()


async def test_another_nonce_answers_nothing(town: Reached) -> None:
    liar = await town.sentinel(honest=False)
    answered = []

    async def answer(link: Link, message: AskDialBack, _body: memoryview) -> None:
        wrong = (message.nonce + 1) % 2**32
        await link.send(DialledBack(wrong, False, f"{LOOPBACK}:{message.port}"))
        await link.send(DialledBack(message.nonce, True, f"{LOOPBACK}:{message.port}"))
        answered.append(message)

    liar.node.links.handle(AskDialBack, answer)
    host = await town.start()
    await until(lambda: answered and not host.reachability._answers)
    assert host.reachability.verdict == Verdict()


async def test_who_is_cut_off_from_all_sentinels_asks_again(
    town: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "PAUSE_S", 0.1)
    sentinel = await town.sentinel(honest=False)
    asked: list[int] = []

    async def count(_link: Link, message: AskDialBack, _body: memoryview) -> None:
        asked.append(message.port)

    sentinel.node.links.handle(AskDialBack, count)
    monkeypatch.setattr(reachability, "ASK_S", 0.05)
    host = await town.start()
    await until(lambda: asked and not host.reachability._answers)
    before = len(asked)
    for link in host.node.links.linked().get(sentinel.node.id, []):
        await link.close()
    await until(lambda: len(asked) > before)


async def test_who_can_be_dialled_again_is_told_and_gives_back_what_is_reserved(
    town: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNREACHED_S", 0.1)
    sentinel = await town.sentinel()
    host = await town.start(kind=Walled)
    await until(lambda: through(host) == {sentinel.node.id})
    listener = await WebSocketTransport(host.node.identity, "test").listen(
        LOOPBACK, int(host.address.rpartition(":")[2]), host.node._accept
    )
    town.stack.push_async_callback(listener.close)
    await until(lambda: host.reachability.verdict.reached)
    await until(lambda: host.node.addresses(host.node.id) == (host.address,))
    await until(lambda: not host.relays.addresses())
    await until(lambda: len(notes(host)) > 1)
    assert notes(host)[1:] == [("good", f"others can dial this machine again at {host.address}")]


async def test_what_is_reserved_is_given_back_at_the_end(town: Reached) -> None:
    sentinel = await town.sentinel()
    host = await town.start(kind=Walled)
    await until(lambda: through(host))
    before = host.node.addresses(host.node.id)
    await host.reachability.close()
    assert not host.relays.addresses()
    # Nobody is told of addresses that lead nowhere: the farewell comes next.
    assert host.node.addresses(host.node.id) == before
    await host.node.stop()
    await until(lambda: liveness(sentinel, host) == "unknown")
