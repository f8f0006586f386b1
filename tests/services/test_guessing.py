"""Guessed tokens: the text is the same with and without; right ones save passes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.guesser import Guesser
from diffuse_core.services import stage_run
from tests.services.hand_client import HandClient
from tests.services.test_reroute import hosts_of, ran, rests
from tests.services.tiny_model import ids
from tests.services.waiting import until

if TYPE_CHECKING:
    from diffuse_core.domain.token_line import Tokens
    from tests.services.cluster import Cluster, Host
    from tests.services.tiny_model import TinyModel

PROMPT, COUNT = 21, 60
WARM = SamplingParams(temperature=1.0, seed=5)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_run, "PREFILL_ROWS", 12)


class Oracle:
    """Guesses the answer, some of it wrong; stands in for what looks into the text."""

    def __init__(self, said: tuple[int, ...], share: float, seed: int = 1) -> None:
        self.said = said
        self.share = share
        self.rng = random.Random(seed)
        self.guessed: list[int] = []

    def after(
        self, _: Guesser, tokens: Tokens, guessed: int, right: int, most: int, now: float
    ) -> tuple[int, ...]:
        assert right <= guessed
        at = tokens.end - PROMPT
        count = min(most, self.rng.choice((0, 1, 3, 7, 20)), max(0, len(self.said) - at))
        truth = self.said[at : at + count]
        guess = tuple(
            token if self.rng.random() < self.share else (token + 1) % 90 for token in truth
        )
        self.guessed.append(len(guess))
        return guess


async def answer(client: HandClient, hosts: list[Host]) -> tuple[int, ...]:
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: client.finish)
    await client.close()
    for host in hosts:
        await host.idle()
    return tuple(client.tokens)


def wish(**more: object) -> dict[str, object]:
    return {"max_tokens": COUNT, "credits": 4 * COUNT, **more}


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("sampling", [SamplingParams(), WARM])
async def test_the_text_is_the_same(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    stages: int,
    share: float,
    sampling: SamplingParams,
) -> None:
    hosts = await hosts_of(cluster, stages)
    plain = HandClient(cluster, ids(PROMPT), **wish(sampling=sampling))
    said = await answer(plain, hosts)
    passes = [len(host.executors[-1].steps) for host in hosts]
    oracle = Oracle(said, share)
    monkeypatch.setattr(Guesser, "after", lambda *given: oracle.after(*given))
    client = HandClient(cluster, ids(PROMPT), **wish(sampling=sampling, drafts=31))
    assert await answer(client, hosts) == said
    assert client.drafts == 31
    assert max(oracle.guessed) > 8
    for host, before in zip(hosts, passes, strict=True):
        now = len(host.executors[-1].steps) - before
        if share == 1.0:
            assert now < 0.6 * before
        assert now <= before
    longest = max(len(told.tokens) for told in client.told)
    assert longest == 1 if share == 0.0 else longest > 3


@pytest.mark.parametrize("victim", [0, 1, 2])
async def test_guesses_and_losses_together(
    cluster: Cluster, tiny: TinyModel, monkeypatch: pytest.MonkeyPatch, victim: int
) -> None:
    said = tiny.says(ids(PROMPT), COUNT, ignore_eos=True)
    oracle = Oracle(said, 0.8)
    monkeypatch.setattr(Guesser, "after", lambda *given: oracle.after(*given))
    *hosts, spare = await hosts_of(cluster, 4)
    client = HandClient(cluster, ids(PROMPT), **wish(credits=15, drafts=31))
    await client.open(hosts)
    await client.feed(0, PROMPT)
    await until(lambda: len(client.tokens) >= 15)
    await rests(client, PROMPT + len(client.tokens) - 1)
    known = len(client.tokens)
    cluster.crash(hosts[victim])
    hosts[victim] = spare
    again = [len(ran(host)) for host in hosts]
    held = await client.reroute(hosts)
    for host in hosts:
        assert host is spare or PROMPT <= held[host] <= PROMPT + known - 1
    await client.resume(held)
    await client.grant(4 * COUNT)
    await until(lambda: client.finish)
    assert tuple(client.tokens) == said
    for host, before in zip(hosts, again, strict=True):
        # Survivors run what was drawn since, and guesses; at most a pass of what they had.
        assert min(ran(host)[before:]) >= (0 if host is spare else held[host])
    await client.close()
    for host in hosts:
        await host.idle()


async def test_guesses_of_a_text_that_repeats_itself(cluster: Cluster) -> None:
    """With the real guesser: the tiny model soon goes round in circles."""
    hosts = await hosts_of(cluster, 1)
    prompt = ids(7) * 3
    plain = HandClient(cluster, prompt, **wish())
    said = await answer(plain, hosts)
    client = HandClient(cluster, prompt, **wish(drafts=7))
    assert await answer(client, hosts) == said
