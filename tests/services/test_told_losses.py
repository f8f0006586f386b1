"""What is told of losses: each real one once, by name, layers and cause; no advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import StagesLost
from diffuse_core.services.losses import (
    MOST_CAUSE,
    StageBlamed,
    StageDeclined,
    passed_over_text,
    went_on_text,
)
from tests.services.stage_net import in_thirds, read_all
from tests.services.tiny_model import ids

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from diffuse_core.domain.view import Waiting
    from tests.services.stage_net import StageHost
    from tests.services.tiny_model import TinyModel

pytestmark = pytest.mark.usefixtures("soon_noticed")

PROMPT = ids(12, 4)
COUNT = 60
ADVICE = ("start the node", "check", "firewall", "try again", "advertises")


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_a_replacement_that_fails_is_no_loss_of_its_own(
    stack: AsyncExitStack, tiny: TinyModel, index: int
) -> None:
    net = await in_thirds(stack, tiny, 4)
    asked = net.generation(PROMPT, COUNT, SamplingParams())
    await asked.open()
    victim = net.on(asked, index)
    fallen: list[StageHost] = []

    def fall(host: StageHost) -> None:
        if len(fallen) < 2:
            fallen.append(host)
            host.kill()

    for host in net.hosts:
        if host.part == victim.part and host is not victim:
            host.executor.at_row = {3: host.soon(lambda host=host: fall(host))}
    tokens, healed = await read_all(asked, COUNT, {5: victim.kill})
    assert tuple(tokens) == tiny.says(PROMPT, COUNT, ignore_eos=True)
    assert len(fallen) == 2
    (told,) = healed
    assert told.lost.node == victim.id.hex()
    (taken,) = told.replaced_by
    assert taken == asked.route[index]
    (event,) = asked.events
    assert event.startswith(f"stage {victim.id.hex()[:8]} (layers {victim.part}) was lost (")
    assert f"went on with {taken.node[:8]} after" in event
    await asked.close()
    await net.idle()


async def test_a_replacement_that_gave_tokens_is_a_loss_of_its_own(
    stack: AsyncExitStack, tiny: TinyModel
) -> None:
    net = await in_thirds(stack, tiny, 3)
    asked = net.generation(PROMPT, COUNT, SamplingParams())
    await asked.open()
    first = net.on(asked, 1)
    lost = [first.id.hex()]

    def again() -> None:
        lost.append(asked.route[1].node)
        net.on(asked, 1).kill()

    _, healed = await read_all(asked, COUNT, {5: first.kill, 40: again})
    assert [told.lost.node for told in healed] == lost
    assert lost[0] != lost[1]
    assert len(asked.events) == 2
    await asked.close()
    await net.idle()


async def test_no_event_gives_advice_on_dialling(stack: AsyncExitStack, tiny: TinyModel) -> None:
    net = await in_thirds(stack, tiny, 1)
    asked = net.generation(PROMPT, COUNT, SamplingParams(), grace_s=0.3)
    spare = await net.host(4, 7)
    # It is known, and not there.
    await spare._listener.close()
    waits: list[Waiting] = []
    try:
        await asked.open()
        victim = net.on(asked, 1)
        with pytest.raises(StagesLost):
            await read_all(asked, COUNT, {5: victim.kill}, waits)
    finally:
        await asked.close()
    told = [*asked.events, *(one.why for one in waits)]
    assert told
    assert any("it cannot be reached" in text for text in told)
    for text in told:
        assert not any(advice in text for advice in ADVICE), text
        assert len(text) < 200


# --- in words -------------------------------------------------------------------------------

NODE, OTHER = b"\xaa" * 32, b"\xbb" * 32
HOP = Hop(NODE, (), Slice(4, 7))
LONG = "nothing listens at 10.0.0.1:9440: start the node there, or check the address"


UNDIALLED = StageBlamed(HOP, f"it cannot be reached: {LONG}", "undialled")


def test_a_cause_is_a_few_words_and_the_error_has_them_all() -> None:
    assert UNDIALLED.cause == "it cannot be reached"
    assert LONG in str(UNDIALLED)
    assert StageBlamed(HOP, LONG, "unanswered").cause == "it does not answer"
    by_other = StageBlamed(HOP, LONG, "ended", accuser=OTHER)
    assert by_other.cause == "stage bbbbbbbb lost its link to it"
    wrong = StageBlamed(HOP, "rows of no use", "ended", "invalid", accuser=OTHER)
    assert wrong.cause == "rows of no use"
    assert len(StageBlamed(HOP, "x" * 500, "said").cause) == MOST_CAUSE


def test_words_for_what_happened() -> None:
    assert went_on_text(UNDIALLED, [OTHER], 1.26) == (
        "stage aaaaaaaa (layers 4:7) was lost (it cannot be reached); "
        "went on with bbbbbbbb after 1.3 s"
    )
    assert passed_over_text(UNDIALLED) == (
        "stage aaaaaaaa (layers 4:7) was passed over (it cannot be reached)"
    )
    assert passed_over_text(StageDeclined(OTHER, "host b declined: full", "memory")) == (
        "host b declined: full"
    )
