"""Every byte between two nodes changed in turn, and every length of what they say, over TCP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.adapters.websocket_transport.tampering import (
    FRAMES,
    Talk,
    cut,
    flip,
    hurry,
    nothing_unhandled,
    sizes,
    talks,
    untouched,
)

if TYPE_CHECKING:
    from tests.adapters.websocket_transport.tampering import Edit

DIRECTIONS = [pytest.param(0, id="there"), pytest.param(1, id="back")]


async def every(make: object, direction: int, step: int) -> list[Talk]:
    size = (await sizes())[direction]
    edits: list[Edit] = [make(direction, offset) for offset in range(step // 2, size, step)]
    async with nothing_unhandled():
        return await talks(edits)


def check(found: list[Talk], caplog: pytest.LogCaptureFixture) -> None:
    for talk in found:
        assert talk.harmless, talk
        # Told to both, where both knew of each other: nobody takes a broken end for a good one.
        assert talk.whole or talk.near_end or talk.far_end, talk
        if len(talk.there) < len(FRAMES):
            assert talk.near_end, talk
            assert not talk.far_end.endswith("closed the channel"), talk
    loud = [r for r in caplog.records if r.levelno >= logging.WARNING and r.name != "asyncio"]
    assert not loud
    assert not any(frame.decode() in caplog.text for frame in FRAMES)


async def test_untouched_it_is_whole() -> None:
    async with nothing_unhandled():
        assert all(talk.whole for talk in await talks([untouched] * 4, at_once=2))


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_bit_flipped_here_and_there(
    direction: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hurry(monkeypatch)
    check(await every(flip, direction, 97), caplog)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_bit_flipped_at_every_offset(
    direction: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the first byte of the connection on, the upgrade from HTTP included.

    A change in words that mean nothing (a header's name, the reason of a close) leaves a talk
    whole; everything else ends it.
    """
    caplog.set_level(logging.INFO)
    hurry(monkeypatch)
    found = await every(flip, direction, 1)
    check(found, caplog)
    assert 0 < sum(talk.whole for talk in found) < len(found) / 4


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_connection_that_ends_at_every_offset(
    direction: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hurry(monkeypatch)
    found = await every(cut, direction, 1)
    check(found, caplog)
    # A farewell that arrived counts, also where the library's own closing words did not.
    assert [talk.whole for talk in found[:-8]] == [False] * (len(found) - 8)
