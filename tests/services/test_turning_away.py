"""A node that holds nothing says so at once, whatever is asked of it for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import (
    Reroute,
    SessionFailed,
    SessionRefused,
    WatchSession,
)
from tests.services.intruder import SESSION, Intruder

if TYPE_CHECKING:
    from diffuse_core.domain.messages import OpenSession
    from tests.services.cluster import Cluster


@pytest.mark.parametrize("moved", [False, True])
async def test_whoever_holds_nothing_says_so(cluster: Cluster, *, moved: bool) -> None:
    """A sentinel never holds anything, a host nothing more once it moves."""
    host = await cluster.host()
    intruder = Intruder(cluster)
    opening = intruder.opening(host)
    if moved:
        await host.service._serving.unload()
        link = await intruder.to(host)
    else:
        sentinel = cluster.nodes[0]
        link = await intruder.links.to(sentinel.id, sentinel.addresses(sentinel.id))
    await answers(intruder, link, opening)


async def answers(intruder: Intruder, link: object, opening: OpenSession) -> None:
    await link.send(opening)
    refused = await intruder.answer()
    assert isinstance(refused, SessionRefused)
    assert (refused.session, refused.reason) == (SESSION, "slice")
    await link.send(Reroute(SESSION, 3, opening.route, 0))
    await link.send(WatchSession(SESSION))
    for epoch in (3, 0):
        failed = await intruder.answer()
        assert isinstance(failed, SessionFailed)
        assert (failed.session, failed.node, failed.kept) == (SESSION, link.remote, False)
        assert (failed.reason, failed.epoch) == ("lost", epoch)
