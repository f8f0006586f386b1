"""What a client of an earlier version said to hosts, said to those of today over real links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.services.tiny_model import ids
from tests.wire.conversation import CASES, COUNT, PROMPT, Replay, unpacked
from tests.wire.test_recorded import OLD

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from tests.services.tiny_model import TinyModel


@OLD
@pytest.mark.parametrize("name", CASES)
async def test_it_gets_the_same_tokens(
    split: Callable, stack: AsyncExitStack, tiny: TinyModel, version: Path, name: str
) -> None:
    text = (version / "conversations.json").read_text(encoding="utf-8")
    case = json.loads(text)[name]
    stages, asked = CASES[name]
    cluster = await split(stages, sockets=True)
    replay = Replay(cluster, case)
    await replay.run(stack)
    assert replay.tokens == case["tokens"]
    if "sampling" not in asked:
        assert tuple(replay.tokens) == tiny.says(ids(PROMPT), COUNT, ignore_eos=True)
    assert replay.heard["d"][-1]["f"] == "length"
    if "logprobs" in asked:
        assert sum(len(message["l"]) for message in replay.heard["d"]) == COUNT
    if "timings" in asked:
        assert all(message["m"] for message in replay.heard["d"])
    for host in cluster.hosts:
        await host.idle()


@OLD
def test_every_kind_that_a_client_says_is_in_a_recording(version: Path) -> None:
    cases = json.loads((version / "conversations.json").read_text(encoding="utf-8")).values()
    said = {
        unpacked(bytes.fromhex(line["frame"]))["t"]
        for case in cases
        for line in case["script"]
        if line["way"] == "to"
    }
    assert said == {"open", "resume", "k", "credit", "close"}
