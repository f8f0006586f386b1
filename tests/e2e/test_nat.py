"""Real hosts and clients behind routers that let nobody in serve and ask through sentinels."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.services.tiny_model import LAYERS, ids, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.routers import Refusal
    from tests.e2e.town import NatTown

    TownOf = Callable[..., NatTown]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOKENS = 24
LONG = 1500
FREED_S = 10.0
HALF = ("--max-layers", str(LAYERS // 2))


def answer(town: NatTown, asking: str, via: str = "relay") -> list[str]:
    """Ask from a machine; the nodes that answered rightly, all met in the same way."""
    given = town.asks(asking, words(5), TOKENS)
    assert tuple(given["token_ids"]) == town.model.says(ids(5), TOKENS, ignore_eos=True)
    assert {step["via"] for step in given["route"]} == {via}
    return [step["node"] for step in given["route"]]


@pytest.mark.parametrize("refusal", ["prohibit", "blackhole"])
def test_a_host_behind_a_router_answers_everybody(town_of: TownOf, refusal: Refusal) -> None:
    town = town_of("s", "o", homes={"h": refusal, "c": refusal})
    town.start_sentinels("s")
    town.run_host("h")
    town.until(lambda: town.reserved("h", "s", viewer="s"))
    assert town.reserved("h", "s", viewer="h")
    # From outside, and from behind another router, where nobody is let in either.
    for asking in ("o", "c"):
        assert answer(town, asking) == [town.id_of("h")]
        town.until(lambda: town.idle("h"), FREED_S)
    # The host itself needs nobody in between.
    assert answer(town, "h", via="direct") == [town.id_of("h")]


def test_two_halves_behind_two_routers_reach_each_other(town_of: TownOf) -> None:
    homes = {"h1": "prohibit", "h2": "blackhole"}
    town = town_of("s1", "s2", "o", homes=homes)
    town.start_sentinels("s1", "s2")
    for home in homes:
        town.run_host(home, *HALF)
        town.until(lambda home=home: town.reserved(home, "s1", "s2"))
    assert sorted(answer(town, "o")) == sorted(map(town.id_of, homes))
    for viewer in ("s1", "s2", *homes):
        assert all(town.reserved(home, "s1", "s2", viewer=viewer) for home in homes)
    for home in homes:
        town.until(lambda home=home: town.idle(home), FREED_S)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_query_that_is_stopped_frees_what_a_relayed_host_held_for_it(
    town_of: TownOf, end: signal.Signals
) -> None:
    town = town_of("s", "o", homes={"h": "prohibit"})
    town.start_sentinels("s")
    town.run_host("h")
    town.until(lambda: town.reserved("h", "s"))
    with town.asking("o", words(5), LONG) as asking:
        asking.until_words(20)
        assert not town.idle("h")
        asking.process.send_signal(end)
        begun = time.monotonic()
        asking.finish()
        town.until(lambda: town.idle("h"), FREED_S)
        assert time.monotonic() - begun < FREED_S
        assert len(asking.words) < LONG // 2
    answer(town, "o")


def test_who_can_be_dialled_is_not_relayed(town_of: TownOf) -> None:
    town = town_of("s", "o", "h", homes={"open": "blackhole", "always": "prohibit"})
    town.start_sentinels("s")
    town.around.open("open")
    for name in ("h", "open"):
        town.run_host(name, *HALF)
        town.until(lambda name=name: town.reserved(name, viewer="s"))
        # All interfaces are listened on; what is told is where others see it.
        assert town.node(town.status_from("o"), name)["addresses"] == [town.place(name)]
    assert sorted(answer(town, "o", via="direct")) == sorted(map(town.id_of, ("h", "open")))


def test_who_wants_to_be_relayed_is_though_it_could_be_dialled(town_of: TownOf) -> None:
    town = town_of("s", "o", "h", homes={})
    town.start_sentinels("s")
    town.run_host("h", "--relay", "always")
    town.until(lambda: town.reserved("h", "s"))
    # No other way to it is told.
    assert town.node(town.status_from("o"), "h")["addresses"] == []
    answer(town, "o")


def test_who_refuses_to_be_relayed_is_out_of_reach_and_is_told_so(town_of: TownOf) -> None:
    town = town_of("s", "o", homes={"h": "prohibit"})
    town.start_sentinels("s")
    town.run_host("h", "--relay", "never")
    town.until(lambda: "nobody outside can dial this machine" in town.log("h"))
    node = town.node(town.status_from("o"), "h")
    assert node is None or not node["relays"]
    code, _, error = town.tries("o", words(5), TOKENS)
    assert code in (3, 4, 7), error
    assert town.own_status("h")["telemetry"]["sessions"] == 0
