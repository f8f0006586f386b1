"""Audits as a client asks for them: its events tell, and those it found out are not used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import ModelIncomplete
from diffuse_core.services.quarantine import QuarantineBook
from tests.services.private_client import private_client
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel


def ask(**options: object) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(21), max_tokens=20, ignore_eos=True, **options)


async def test_every_stage_that_has_a_replica_is_audited(
    cluster: Cluster, tiny: TinyModel
) -> None:
    for cap in (5, 5):
        await cluster.host(cap)
    late = [await cluster.host(5, wait=False) for _ in range(2)]
    await cluster.settled(*late)
    client = await cluster.client()
    _, tokens, finished = await client.whole(ask(audit=1.0))
    assert tokens == tiny.says(ids(21), 20, ignore_eos=True)
    assert len(finished.audits) == 2
    assert all(" agrees with " in told for told in finished.audits)
    assert finished.events == ()
    _, _, finished = await client.whole(ask())
    assert finished.audits == ()
    for host in cluster.hosts:
        assert host.service.stage.sessions == 0
        assert host.service.stage.kv_used == 0


async def test_a_model_of_which_only_nodes_in_quarantine_hold_a_part_says_so(
    cluster: Cluster,
) -> None:
    hosts = [await cluster.host(5) for _ in range(2)]
    client = await cluster.client()
    assert isinstance(client._quarantine, QuarantineBook)
    client._quarantine.bar(hosts[1].id)
    with pytest.raises(ModelIncomplete, match="in quarantine here because of audits") as told:
        await client.whole(ask())
    assert hosts[1].id.hex()[:8] in str(told.value)
    client._quarantine.clear()
    await client.whole(ask())


@pytest.mark.slow
async def test_what_runs_here_is_not_audited_nor_what_is_beside_it(
    cluster: Cluster, tiny: TinyModel
) -> None:
    for cap in (5, 5):
        await cluster.host(cap)
    late = [await cluster.host(5, wait=False) for _ in range(2)]
    await cluster.settled(*late)
    hidden = await private_client(cluster)
    _, tokens, finished = await hidden.client.whole(ask(audit=1.0, private=2))
    assert tokens == tiny.says(ids(21), 20, ignore_eos=True)
    assert len(finished.route) == 3
    # The one in the middle is beside ours, and the last one's tokens would go to another node.
    assert finished.audits == ()
    await hidden.idle()
