"""Audits as a client asks for them: its events tell, and those it found out are not used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import Audited, Finished, GenerateRequest, TextDelta
from diffuse_core.errors import ModelIncomplete
from diffuse_core.services.quarantine import QuarantineBook
from tests.services.private_client import private_client
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from diffuse_core.services.client import ClientService
    from tests.services.cluster import Cluster
    from tests.services.tiny_model import TinyModel


def ask(**options: object) -> GenerateRequest:
    return GenerateRequest(model="tiny", raw=words(21), max_tokens=20, ignore_eos=True, **options)


async def asked(
    client: ClientService, **options: object
) -> tuple[tuple[int, ...], Finished, list[Audited]]:
    """Tokens, how it finished, and what came of its audits."""
    tokens: list[int] = []
    told: list[Audited] = []
    finished: Finished | None = None
    async for event in client.generate(ask(**options)):
        if isinstance(event, TextDelta):
            tokens += event.token_ids
        elif isinstance(event, Finished):
            finished = event
        elif isinstance(event, Audited):
            assert finished is not None
            told.append(event)
    assert finished is not None
    return tuple(tokens), finished, told


async def test_every_stage_that_has_a_replica_is_audited(
    cluster: Cluster, tiny: TinyModel
) -> None:
    for cap in (5, 5):
        await cluster.host(cap)
    late = [await cluster.host(5, wait=False) for _ in range(2)]
    await cluster.settled(*late)
    client = await cluster.client()
    tokens, finished, told = await asked(client, audit=1.0)
    assert tokens == tiny.says(ids(21), 20, ignore_eos=True)
    assert [found.verdict for found in told] == ["agrees", "agrees"]
    assert [found.node for found in told] == [step.node for step in finished.route]
    assert finished.audits == 2
    assert finished.events == ()
    _, finished, told = await asked(client)
    assert (finished.audits, told) == (0, [])
    for host in cluster.hosts:
        assert host.service.stage.sessions == 0
        assert host.service.stage.kv_used == 0


async def test_a_model_of_which_only_nodes_in_quarantine_hold_a_part_says_so(
    cluster: Cluster,
) -> None:
    hosts = [await cluster.host(5) for _ in range(2)]
    client = await cluster.client()
    assert isinstance(client.quarantine, QuarantineBook)
    client.quarantine.bar(hosts[1].id)
    with pytest.raises(ModelIncomplete, match="in quarantine here because of audits") as told:
        await client.whole(ask())
    assert hosts[1].id.hex()[:8] in str(told.value)
    client.quarantine.clear()
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
    tokens, finished, told = await asked(hidden.client, audit=1.0, private=2)
    assert tokens == tiny.says(ids(21), 20, ignore_eos=True)
    assert len(finished.route) == 3
    # The one in the middle is beside ours, and the last one's tokens would go to another node.
    assert (finished.audits, told) == (0, [])
    await hidden.idle()
