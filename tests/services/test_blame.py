"""Neither one liar nor one bad way ends a generation that could go on."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Hop, SessionFailed
from diffuse_core.domain.slices import Slice
from diffuse_core.services.blame import Blame
from diffuse_core.services.losses import StageBlamed
from diffuse_core.services.stage_outlet import Outlet
from tests.services.test_going_on import PROMPT, Listener, ask, twice
from tests.services.waiting import until

if TYPE_CHECKING:
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

A, B, X, Y = (NodeId(bytes([number]) * 32) for number in (1, 2, 3, 4))


def lost(node: NodeId, **more: object) -> StageBlamed:
    return StageBlamed(Hop(node, (), Slice(0, 5)), "it is gone", "ended", **more)


async def tells(cluster: Cluster, host: Host, **told: float) -> None:
    """Let a host say this of itself from now on; return when all know."""

    def report() -> None:
        host.node.report(replace(host.service.load, sessions=0, **told))

    def known() -> bool:
        seen = (member.record for node in cluster.nodes for member in node.members())
        loads = [record.load for record in seen if record.node == host.id]
        return all(getattr(load, name) == told[name] for load in loads for name in told)

    host.service.report = report
    report()
    await until(known)


@pytest.mark.slow
async def test_a_stage_that_accuses_the_next_one_is_gone_around(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks fast, its honest twin slow; and it accuses whoever comes after it."""
    hosts = await twice(cluster)
    liar, twin = (host for host in hosts.values() if host.service.slice.start == 0)
    await tells(cluster, liar, step_ms=0.01)
    await tells(cluster, twin, step_ms=400.0)
    accused = set()
    note = Outlet.note

    def lie(self: Outlet, result: object) -> None:
        note(self, result)
        for run in liar.service.stage._runs.values():
            if run.outlet is self and run.state.received >= PROMPT + 3:
                accused.add(run.state.after.node)
                text = SessionFailed(run.state.id, run.state.after.node, "lost", "lies")
                liar.node.tasks.spawn(run.client.send(text), "lie")

    monkeypatch.setattr(Outlet, "note", lie)
    client = await cluster.client()
    async with aclosing(client.generate(ask())) as stream:
        listener = Listener(stream)
        await listener.hear()
    listener.says(tiny)
    assert listener.finished.route[0].node == twin.id.hex()
    assert len(accused) == 1


def test_accusers_are_as_doubtful_as_the_accused() -> None:
    blame = Blame()
    blame.accused(lost(X, accuser=A), reached=True)
    assert list(blame.to_avoid({Y})) == [{A, X, Y}, {A}, {X}, set()]
    blame.accused(lost(X, accuser=A), reached=True)
    assert not blame.condemned
    blame.accused(lost(X, accuser=B), reached=True)
    assert list(blame.to_avoid(set())) == [{A, B, X}, {A, B, X}, {X}, {X}, {A, B}]
    assert not blame.avoided


def test_who_accuses_rightly_is_not_doubted() -> None:
    blame = Blame()
    blame.accused(lost(X, accuser=A), reached=False)
    assert list(blame.to_avoid(set())) == [{X}, {X}]
    assert blame.away == {X}


def test_a_second_loss_counts_when_it_came_another_way() -> None:
    for ways, out in (
        ((None, None), True),
        ((A, None), True),
        ((A, B), True),
        ((A, A), False),
        ((A, A, A), True),
    ):
        blame = Blame()
        for way in ways:
            blame.saw(lost(X, relayed_through=way))
        assert (X in blame.out) == out, ways


def test_the_ends_of_a_lost_way_may_meet_again_once() -> None:
    blame = Blame()
    for expected in (None, X, X):
        blame.accused(lost(X, accuser=A), reached=True)
        assert blame.to_replace(lost(X, accuser=A)) == expected


def test_who_computed_wrongly_is_replaced_at_once() -> None:
    blame = Blame()
    wrong = lost(X, accuser=A, reason="invalid")
    blame.accused(wrong, reached=True)
    assert blame.to_replace(wrong) == X


def test_who_accuses_one_after_the_other_is_replaced() -> None:
    blame = Blame()
    blame.accused(lost(X, accuser=A), reached=True)
    blame.accused(lost(Y, accuser=A), reached=True)
    assert blame.to_replace(lost(Y, accuser=A)) == A


def test_who_cannot_be_reached_is_replaced_whoever_says_so() -> None:
    blame = Blame()
    blame.accused(lost(X, accuser=A), reached=False)
    assert blame.to_replace(lost(X, accuser=A)) == X
    blame.accused(lost(Y, accuser=A), reached=True)
    assert blame.to_replace(lost(Y, accuser=A)) is None


def test_a_way_of_ours_is_no_reason_to_replace_a_stage() -> None:
    blame = Blame()
    blame.saw(lost(X))
    assert blame.to_replace(lost(X)) is None
    blame.saw(lost(X))
    assert blame.to_replace(lost(X)) == X
