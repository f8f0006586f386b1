"""A Stage says that it sent what it kept: at last it goes, and not every Stage behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.messages import ForwardHidden, ForwardTokens
from tests.services import striking
from tests.services.scripted_time import played
from tests.services.striking import Answer, undisturbed

if TYPE_CHECKING:
    from diffuse_core.services.link import Link
    from tests.services.stage_net import StageHost, StageNet
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("in_pieces")


def withhold(host: StageHost, kind: type) -> None:
    """From now on nothing of a kind leaves a host, and it counts it as sent."""

    def mute(link: Link) -> None:
        send = link.send

        async def send_some(message: object, body: bytes = b"") -> None:
            if not isinstance(message, kind):
                await send(message, body)

        link.send = send_some

    for links in host.links.linked().values():
        for link in links:
            mute(link)
    host.links.on_met(mute)


@pytest.mark.parametrize(
    ("kind", "index", "blamed_first"),
    [(ForwardHidden, 0, 1), (ForwardHidden, 1, 2), (ForwardTokens, 2, 0)],
    ids=["first", "middle", "last"],
)
def test_who_withholds_rows_is_replaced(
    tiny: TinyModel, kind: type, index: int, blamed_first: int
) -> None:
    wanted = undisturbed(tiny)

    async def act(net: StageNet) -> None:
        await striking.hosts(net)
        answer = Answer(net)
        await answer.open()
        liar, innocent = answer.on(index), answer.on(blamed_first)
        liar.executor.at_row[striking.IN_ANSWER] = liar.soon(lambda: withhold(liar, kind))
        await answer.read()
        assert answer.tokens == wanted
        assert [event.lost.node for event in answer.healed[-2:]] == [
            innocent.id.hex(),
            liar.id.hex(),
        ]
        await answer.end()

    played(tiny, act)
