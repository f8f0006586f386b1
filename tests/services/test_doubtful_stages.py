"""A host that others suspect runs a stage only where no other can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from diffuse_core.domain.view import GenerateRequest
from tests.services.tiny_model import ids, words

if TYPE_CHECKING:
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

ASKED = GenerateRequest(model="tiny", raw=words(4), max_tokens=3, ignore_eos=True)
TIMES = 12


async def test_a_suspect_is_gone_around_while_there_is_another(
    cluster: Cluster, tiny: TinyModel
) -> None:
    hosts = [await cluster.host(), await cluster.host()]
    observer = await cluster.observer()
    client = await cluster.client(observer)

    def suspect(host: Host) -> None:
        member = observer._members[host.id]
        observer._members[host.id] = replace(member, liveness="suspect")

    async def taken() -> set[str]:
        found = set()
        for _ in range(TIMES):
            _, tokens, finished = await client.whole(ASKED)
            assert tokens == tiny.says(ids(4), 3, ignore_eos=True)
            assert not finished.events
            found.update(step.node for step in finished.route)
        return found

    first, second = (host.id.hex() for host in hosts)
    assert await taken() == {first, second}
    suspect(hosts[0])
    assert await taken() == {second}
    suspect(hosts[1])
    assert await taken() == {first, second}
