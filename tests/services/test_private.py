"""Private mode: the same text, and no token of it leaves the client."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.messages import ForwardHidden, OpenSession
from diffuse_core.domain.view import GenerateRequest, Healed, RouteChosen, TextDelta
from tests.services import tiny_model
from tests.services.cluster import SPLITS, Cluster, start_split
from tests.services.private_client import private_client
from tests.services.stage_net import CountingExecutor, refusing, with_nan
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words
from tests.services.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from diffuse_core.domain.view import RouteStep
    from tests.services.cluster import Host
    from tests.services.private_client import PrivateClient

pytestmark = pytest.mark.slow

GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=1.3, top_k=40, seed=7)
WORDS = 3000


@pytest.fixture
def wide(
    stack: AsyncExitStack,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable:
    """Networks of a model with so many words that their ids are unlike all other numbers."""
    monkeypatch.setattr(tiny_model, "WORDS", WORDS)
    monkeypatch.setattr(tiny_model, "BEGIN", WORDS)
    monkeypatch.setattr(tiny_model, "END", WORDS + 1)
    monkeypatch.setattr(tiny_model, "VOCAB", WORDS + 2)
    model = make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")

    async def start(stages: int, *, load: Callable = load_slice, **options: bool) -> Cluster:
        if load is load_slice:
            return await start_split(stack, model, tmp_path, stages, **options)
        cluster = Cluster(stack, model, tmp_path, **options)
        for cap in SPLITS[stages]:
            await cluster.host(cap, load=load)
        return cluster

    return start


def ask(tokens: int, count: int = 12, **options: object) -> GenerateRequest:
    return GenerateRequest(
        model="tiny", raw=words(tokens), max_tokens=count, **{"ignore_eos": True, **options}
    )


async def all_idle(cluster: Cluster, hidden: PrivateClient) -> None:
    await hidden.idle()
    for host in cluster.hosts:
        await host.idle()


@pytest.mark.parametrize("tail", [0, 2])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
async def test_the_text_is_the_same_and_no_id_leaves(
    wide: Callable, sampling: SamplingParams, tail: int
) -> None:
    cluster = await wide(3)
    plain = await cluster.client()
    hidden = await private_client(cluster)
    text, wanted, _ = await plain.whole(ask(30, sampling=sampling))
    said, tokens, finished = await hidden.client.whole(
        ask(30, sampling=sampling, private=3, private_tail=tail)
    )
    assert (said, tokens) == (text, wanted)
    assert len(set(tokens)) > 3
    vias = [step.via for step in finished.route]
    assert [at for at, via in enumerate(vias) if via == "local"] == (
        [0, len(vias) - 1] if tail else [0]
    )
    assert [step.slice.start for step in finished.route][:2] == [0, 3]
    assert finished.route[-1].slice.end == LAYERS
    assert hidden.ear.tells((*ids(30), *tokens)) == []
    await all_idle(cluster, hidden)


async def test_the_search_finds_ids_that_leave(wide: Callable) -> None:
    cluster = await wide(3)
    heard = await private_client(cluster)
    _, tokens, _ = await heard.client.whole(ask(30))
    found = heard.ear.tells(ids(30))
    assert set(found) == {"ForwardTokens.k", "raw bytes"}
    assert tokens


@pytest.mark.parametrize("tail", [0, 1])
async def test_no_id_leaves_over_sockets(wide: Callable, tail: int) -> None:
    cluster = await wide(2, sockets=True)
    plain = await cluster.client()
    hidden = await private_client(cluster)
    _, wanted, _ = await plain.whole(ask(40, 20))
    _, tokens, _ = await hidden.client.whole(ask(40, 20, private=2, private_tail=tail))
    assert tokens == wanted
    assert hidden.ear.tells((*ids(40), *tokens)) == []
    assert any(isinstance(message, ForwardHidden) for message in hidden.ear.messages())
    await all_idle(cluster, hidden)


async def test_hosts_learn_nothing_of_how_it_is_drawn(wide: Callable) -> None:
    cluster = await wide(2)
    hidden = await private_client(cluster)
    sampling = SamplingParams(
        temperature=0.9,
        seed=4711,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        logit_bias=((1234, 3.0),),
    )
    plain = await cluster.client()
    request = ask(20, 10, sampling=sampling, ignore_eos=False, logprobs=3)
    _, wanted, _ = await plain.whole(request)
    private = ask(
        20, 10, sampling=sampling, ignore_eos=False, logprobs=3, private=1, private_tail=1
    )
    _, tokens, _ = await hidden.client.whole(private)
    assert tokens == wanted
    opened = [one for one in hidden.ear.messages() if isinstance(one, OpenSession)]
    assert {one.index for one in opened} == {1, 2}
    for one in opened:
        assert one.decoding.sampling == SamplingParams()
        assert one.decoding.stop_ids == one.past == one.seen == ()


@pytest.mark.parametrize(("tail", "speculate"), [(0, True), (1, True), (1, False)])
async def test_guesses_are_local_and_change_nothing(
    wide: Callable, tail: int, speculate: bool
) -> None:
    cluster = await wide(2)
    plain = await cluster.client()
    hidden = await private_client(cluster)
    # An answer of two words repeats itself, so that there is something to guess.
    biased = SamplingParams(temperature=0.0, logit_bias=((1234, 100.0), (2345, 100.0)))
    request = {"raw": words(6), "max_tokens": 60, "ignore_eos": True, "sampling": biased}
    plain_request = GenerateRequest(model="tiny", speculate=False, **request)
    _, wanted, _ = await plain.whole(plain_request)
    _, tokens, _ = await hidden.client.whole(
        GenerateRequest(model="tiny", speculate=speculate, private=2, private_tail=tail, **request)
    )
    assert tokens == wanted
    # Where a host draws it must know of the bias.
    assert hidden.ear.tells(ids(6) if not tail else (*ids(6), *tokens)) == []
    sent = [one for one in hidden.ear.messages() if isinstance(one, ForwardHidden)]
    guessed = [one for one in sent if one.drafts]
    assert bool(guessed) == bool(tail and speculate)
    assert all(set(one.drafts) == {0} for one in guessed)
    if guessed:
        assert len(sent) < len(tokens)
    await all_idle(cluster, hidden)


class Fragile(CountingExecutor):
    """The real executor, of a host that may break."""

    def __init__(self, *given: object) -> None:
        self._inner = load_slice(*given)
        self.rows, self.at_row, self.spoil = Counter(), {}, None


def breaks(cluster: Cluster, host: Host, act: str) -> None:
    if act == "dies":
        cluster.crash(host)
        cluster.hosts.remove(host)
    else:
        host.executors[-1].spoil = with_nan if act == "nan" else refusing


@pytest.mark.parametrize("act", ["dies", "nan", "refuses"])
@pytest.mark.parametrize(("tail", "place"), [(0, 1), (0, 2), (2, 1), (2, 2)])
async def test_a_host_is_lost(wide: Callable, tail: int, place: int, act: str) -> None:
    """The first after our own layers, or the last one; their replicas take over."""
    cluster = await wide(2, load=Fragile)
    plain = await cluster.client()
    _, wanted, _ = await plain.whole(ask(30, 30, sampling=WARM))
    for _ in range(2):
        await cluster.host(5, load=Fragile)
    hidden = await private_client(cluster)
    tokens: list[int] = []
    healed: list[Healed] = []
    routes: list[tuple[RouteStep, ...]] = []
    request = ask(30, 30, sampling=WARM, private=3, private_tail=tail)
    async with aclosing(hidden.client.generate(request)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                tokens += event.token_ids
            elif isinstance(event, Healed):
                healed.append(event)
            else:
                routes.append(event.route)
            if len(tokens) == 5 and not healed:
                lost = routes[0][place].node
                for host in cluster.hosts[:]:
                    if host.id.hex() == lost:
                        breaks(cluster, host, act)
    assert tuple(tokens) == wanted
    assert [event.lost.node for event in healed] == [lost]
    assert all(step.node != lost for step in routes[-1])
    assert routes[-1][0] == routes[0][0]
    assert hidden.ear.tells((*ids(30), *tokens)) == []
    await hidden.idle()
    for host in cluster.hosts:
        if host.id.hex() != lost:
            await host.idle()


async def test_a_cancelled_answer_frees_everything(wide: Callable) -> None:
    cluster = await wide(2)
    hidden = await private_client(cluster)
    events = hidden.client.generate(ask(30, 60, private=2, private_tail=2))
    async for event in events:
        if isinstance(event, TextDelta):
            break
    assert [stage.sessions for stage in hidden.stages.stages] == [1, 1]
    await events.aclose()
    await all_idle(cluster, hidden)
    await hidden.stages.close()
    hidden.layers.close()
    assert hidden.layers.executors == ()


async def test_a_client_that_is_met_over_a_sentinel(wide: Callable) -> None:
    cluster = await wide(2, relayed=True)
    hidden = await private_client(cluster)
    plain = await cluster.client()
    _, wanted, _ = await plain.whole(ask(30))
    _, tokens, finished = await hidden.client.whole(ask(30, private=2, private_tail=2))
    assert tokens == wanted
    assert {step.via for step in finished.route} == {"local", "relay"}
    assert hidden.ear.tells((*ids(30), *tokens)) == []
    await until(lambda: all(stage.sessions == 0 for stage in hidden.stages.stages))


async def test_answers_side_by_side_and_other_layers_after_them(wide: Callable) -> None:
    cluster = await wide(2)
    hidden = await private_client(cluster)
    plain = await cluster.client()
    wanted = [(await plain.whole(ask(count)))[1] for count in (10, 20)]
    made = await asyncio.gather(
        *(hidden.client.whole(ask(count, private=2, private_tail=1)) for count in (10, 20))
    )
    assert [tokens for _, tokens, _ in made] == wanted
    assert len(hidden.told) == 1
    _, tokens, _ = await hidden.client.whole(ask(10, private=4))
    assert tokens == wanted[0]
    assert [line.split(" take")[0] for line in hidden.told] == [
        "private: layers 0:2 and 9:10",
        "private: layers 0:4",
    ]


async def test_times_are_told_of_our_own_stages_too(wide: Callable) -> None:
    hidden = await private_client(await wide(2))
    told: list[int] = []
    route: tuple[RouteStep, ...] = ()
    request = ask(10, timings=True, private=2, private_tail=2)
    async with aclosing(hidden.client.generate(request)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                told.append(len(event.stages))
            elif isinstance(event, RouteChosen):
                route = event.route
    assert len(route) == 4
    assert set(told) <= {0, 4}
    assert told[0] == told[-1] == 4


@pytest.mark.parametrize("tail", [0, 1])
async def test_no_audit_gives_the_answer_to_others(wide: Callable, tail: int) -> None:
    cluster = await wide(3)
    for _ in range(3):
        await cluster.host(4)
    hidden = await private_client(cluster)
    _, tokens, finished = await hidden.client.whole(
        ask(30, private=1, private_tail=tail, audit=1.0)
    )
    assert len(finished.route) >= 3
    assert hidden.ear.tells((*ids(30), *tokens)) == []
    await hidden.idle()
