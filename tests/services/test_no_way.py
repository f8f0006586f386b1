"""Live hosts that nobody can dial and no sentinel relays for: a client says that, and who."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.view import GenerateRequest
from diffuse_core.errors import ModelIncomplete
from tests.services.tiny_model import ids, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

ASK = GenerateRequest(model="tiny", raw=words(5), max_tokens=4, ignore_eos=True)


async def hide(cluster: Cluster, host: Host) -> None:
    """Let a host tell no address any more, as one that lost its last sentinel."""
    host.node.advertise(())
    await until(lambda: not any(node.addresses(host.id) for node in cluster.nodes))


async def test_live_hosts_that_cannot_be_met_are_named(split: Callable) -> None:
    cluster = await split(2)
    first, second = cluster.hosts
    await hide(cluster, second)
    words_of_it = f"held by {second.id.hex()[:8]}, which no sentinel relays for now; start"
    with pytest.raises(ModelIncomplete, match=f"^layers 5:10 are {words_of_it}") as got:
        await (await cluster.client()).whole(ASK)
    assert got.value.exit_code == 4
    await hide(cluster, first)
    both = " and ".join(sorted(host.id.hex()[:8] for host in cluster.hosts))
    with pytest.raises(ModelIncomplete, match=f"^layers 0:10 are held by {both}, which"):
        await (await cluster.client()).whole(ASK)


async def test_who_has_a_link_to_them_needs_no_address(split: Callable, tiny: TinyModel) -> None:
    cluster = await split(2)
    first, second = cluster.hosts
    await hide(cluster, second)
    await first.node.links.to(second.id, (second.address,))
    _, tokens, _ = await first.client.whole(ASK)
    assert tokens == tiny.says(ids(5), 4, ignore_eos=True)
