"""A client that is interrupted, killed or stopped in the middle of an answer holds up no host."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from diffuse_core import wiring
from tests.e2e.processes import WAIT_S
from tests.e2e.town import NETWORK, Town
from tests.services.tiny_model import LAYERS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.asking import Asking
    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HOSTS = ("h1", "h2")
TOKENS = 1400
SOME = 60
AT_ONCE_S = 3.0
"""A node tells its owner how it is once a second; the client's process has to end as well."""
VANISHED_S = 10.0
INTERRUPTED = 130


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, talkative: TinyModel) -> Iterator[Town]:
    """Two hosts of half of the model each."""
    with Town(tmp_path_factory.mktemp("town"), talkative) as town:
        town.start_sentinels("s")
        for host in HOSTS:
            town.run_host(host, "--max-layers", str(LAYERS // 2))
            town.until(lambda host=host: stage(town, host) == "ready")
        yield town


def stage(town: Town, host: str) -> str:
    return str(town.own_status(host)["telemetry"]["stage"])


def busy(town: Town) -> list[str]:
    """The hosts that hold something of a session."""
    return [host for host in HOSTS if not town.idle(host)]


async def until_idle(town: Town, host: str) -> None:
    """Wait until a host tells its owner that it holds nothing."""
    attached = await wiring.attach(town.directory / host, NETWORK)
    try:
        async for update in attached.updates():
            told = update.telemetry
            if told is not None and told.sessions == told.kv_used == 0:
                return
    finally:
        await attached.close()


def seconds_to_idle(town: Town, since: float) -> float:
    """Until no host holds anything, from a monotonic time on."""

    async def wait() -> None:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(until_idle(town, host) for host in HOSTS))

    asyncio.run(wait())
    return time.monotonic() - since


def begun(town: Town) -> Asking:
    """An answer of which some words have come; there are many more."""
    seconds_to_idle(town, 0.0)
    asking = town.asking("o", words(5), TOKENS)
    asking.until_words(SOME)
    return asking


def test_ctrl_c_frees_all_that_an_answer_held(town: Town) -> None:
    with begun(town) as asking:
        asking.process.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        assert asking.finish() == INTERRUPTED, asking.errors
        assert len(asking.words) < TOKENS
        # By the time that it has ended all is freed: no host needs to find out.
        assert seconds_to_idle(town, interrupted) < AT_ONCE_S


def test_a_second_answer_is_not_touched_when_the_first_is_interrupted(town: Town) -> None:
    whole = town.asks("o", words(7), TOKENS)["text"].split()
    with begun(town) as first, town.asking("o", words(7), TOKENS) as second:
        second.until_words(SOME)
        first.process.send_signal(signal.SIGINT)
        assert first.finish() == INTERRUPTED, first.errors
        assert second.finish() == 0, second.errors
        assert second.words == whole
    seconds_to_idle(town, 0.0)


def test_a_client_that_is_killed_is_forgotten(town: Town) -> None:
    with begun(town) as asking:
        asking.process.kill()
        killed = time.monotonic()
        took = seconds_to_idle(town, killed)
    assert len(asking.words) < TOKENS
    assert took < VANISHED_S + AT_ONCE_S


def test_a_client_that_is_stopped_is_forgotten_when_it_is_silent_for_long(town: Town) -> None:
    whole = town.asks("o", words(5), TOKENS)["text"].split()
    with begun(town) as asking:
        asking.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        # It has granted some tokens ahead; then the hosts wait for it, but not for ever.
        assert busy(town) == list(HOSTS)
        assert seconds_to_idle(town, stopped) < VANISHED_S + AT_ONCE_S
        asking.process.send_signal(signal.SIGCONT)
        # As a machine that was asleep: it goes on with them, as after any loss.
        assert asking.finish() == 0, asking.errors
        assert asking.words == whole
