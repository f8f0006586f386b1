"""What-if answers, word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tui_fakes import network, node
from tui_planned import MIB, only, planned, thirds

from diffuse_core.errors import UsageError
from diffuse_tui.presenter.spans import plain
from diffuse_tui.presenter.what_if import what_if_lines
from diffuse_tui.presenter.what_if_host import parse_hosts, what_if_host, with_count
from diffuse_tui.presenter.what_if_node import what_if_node

if TYPE_CHECKING:
    from diffuse_core.domain.view import NetworkView
    from diffuse_tui.presenter.what_if import WhatIf


def gone(view: NetworkView, *numbers: int) -> WhatIf:
    return what_if_node(view, only(view), {node(number).node for number in numbers})


def facts(answer: WhatIf) -> dict[str, str]:
    return dict(answer.facts)


def test_the_only_holder_goes_and_another_takes_over() -> None:
    answer = gone(thirds(), 1)
    assert answer.headline == "if it goes: gap 12:18, model Incomplete"
    assert answer.tone == "bad"
    assert facts(answer) == {
        "holds": "00000001 0:18 (ready)",
        "lost": "12:18: nobody else holds them",
        "weaker": "0:12 would be left with one holder",
        "sessions": "2 sessions there now: they wait for a host to take over, "
        "and end if none does",
        "next": "moves: 00000003 from 18:30 to 1:19; Incomplete -> Fragile",
    }
    assert [(name, model.state) for name, model in answer.steps] == [
        ("now", "Fragile"),
        ("then", "Incomplete"),
        ("healed", "Fragile"),
    ]
    text = [plain(line) for line in what_if_lines(answer, 76)]
    assert text[0] == answer.headline
    assert text[3].startswith(" 00000001  E████")
    assert "! gap !" in text[5]
    assert text[5].endswith("○ Incomplete")


def test_one_of_two_holders_goes() -> None:
    answer = gone(thirds(), 2)
    assert answer.headline == (
        "if it goes: every layer that has a holder keeps one, model stays Fragile"
    )
    assert facts(answer)["next"] == (
        "no other host can be spared: one more 2.2 GiB host makes it Robust"
    )
    full = planned(*(node(n, (0, 30)) for n in (1, 2, 3, 4)))
    answer = gone(full, 1)
    assert answer.headline == (
        "if it goes: every layer keeps 3 holders or more, model stays Robust"
    )
    assert facts(answer) == {
        "holds": "00000001 0:30 (ready)",
        "weaker": "nothing that falls below the target",
        "next": "nobody needs to move",
    }
    assert gone(full, 1, 2, 3).headline == (
        "if these 3 go: every layer has only one holder, model Fragile"
    )


def test_several_go_at_once() -> None:
    answer = gone(thirds(), 3, 4)
    assert answer.headline == "if both go: gap 18:30, model Incomplete"
    assert facts(answer)["lost"] == "18:30, with the head: nobody else holds them"
    assert facts(answer)["next"] == "moves: 00000002 from 0:12 to 14:30; Incomplete -> Fragile"
    assert facts(gone(thirds(), 1, 2))["next"] == (
        "moves: 00000003 from 18:30 to 0:16; stays Incomplete, 16:18 still missing"
    )
    answer = gone(thirds(), 1, 2, 3)
    assert answer.headline == "if these 3 go: gap 0:18, model Incomplete"
    assert facts(answer)["lost"] == "0:18, with the embedding: nobody else holds them"
    answer = gone(thirds(), 1, 2, 3, 4)
    assert answer.headline == "if these 4 go: gap 0:30, model Incomplete"
    assert facts(answer)["lost"].startswith("0:30, with the embedding and the head")
    assert facts(answer)["next"] == (
        "no other host can be spared: one more 3.7 GiB host closes the gap"
    )


def test_a_surplus_host_reinforces_what_became_weak() -> None:
    size = 2200 * MIB
    left = (node(n, (0, 15), capacity=size) for n in (1, 2, 3, 4))
    answer = gone(planned(*left, *(node(n, (15, 30), capacity=size) for n in (5, 6))), 6)
    assert answer.headline == "if it goes: layers 15:30 have one holder, model Fragile"
    assert facts(answer)["next"] == "moves: 00000001 from 0:15 to 12:30; Fragile -> Robust"
    assert answer.tone == "warning"


def test_hosts_rearrange_where_none_can_be_spared() -> None:
    size = 2200 * MIB
    view = planned(
        node(1, (0, 15), capacity=size), node(2, (5, 20), capacity=size), node(3, (20, 30))
    )
    view = replace(view, nodes=(*view.nodes[:2], replace(view.nodes[2], capacity=size)))
    answer = gone(view, 3)
    assert answer.headline == "if it goes: gap 20:30, model Incomplete"
    assert facts(answer)["next"] == "moves: 00000002 from 5:20 to 12:30; Incomplete -> Fragile"


def test_what_is_on_its_way_is_told_with_what_comes_next() -> None:
    view = planned(node(1, (0, 30)), node(2, (10, 20), state="loading"))
    answer = gone(view, 1)
    assert answer.headline == "if it goes: gap 0:30, model Incomplete"
    assert facts(answer)["next"] == (
        "no other host can be spared: 10:20 is being loaded by 1 host; "
        "one more 3.7 GiB host closes the gap"
    )
    answer = gone(view, 2)
    assert answer.headline == "if it goes: no layer loses a holder, model stays Fragile"
    assert answer.tone == "dim"


def test_who_holds_nothing_changes_nothing() -> None:
    answer = gone(thirds(node(9)), 9)
    assert answer.headline == "nothing changes: it holds nothing of tiny-llama"
    assert gone(thirds(node(8), node(9)), 8, 9).headline == (
        "nothing changes: they hold nothing of tiny-llama"
    )


def test_a_host_comes() -> None:
    view = thirds(node(9, me=True))
    answer = what_if_host(view, only(view), 500 * MIB)
    assert answer.headline == "it would take layers 12:16 of 30; stays Fragile"
    assert answer.facts == (
        ("why", "reinforces 12:16 of 30, held once"),
        ("changes", "stays Fragile, makes 12:16 Robust"),
        ("bytes", "weights 400 MiB + KV 40 MiB = 440 MiB of 500 MiB"),
        ("memory", "adding 50 MiB takes 12:17: makes 12:17 Robust"),
        ("memory", "adding 160 MiB takes 12:18: makes 12:18 Robust, Fragile -> Robust"),
        ("hosts", "1 more host like this one gives every layer 2 holders (Robust)"),
    )
    assert answer.rows[0][0] == "the host"
    assert [(name, model.state) for name, model in answer.steps] == [
        ("now", "Fragile"),
        ("then", "Fragile"),
    ]
    broken = planned(node(1, (0, 12)), node(2, (18, 30)))
    answer = what_if_host(broken, only(broken), 2 * 10**9)
    assert answer.headline == "it would take layers 1:18 of 30; Incomplete -> Fragile"
    assert facts(answer)["changes"].startswith("Incomplete -> Fragile, closes the gap 12:18")


def test_several_hosts_come_one_after_the_other() -> None:
    view = thirds()
    answer = what_if_host(view, only(view), 700 * MIB, 3)
    assert answer.headline == "3 hosts would take 12:18, 0:4 and 26:30; Fragile -> Robust"
    assert answer.facts[:2] == (
        ("host 1", "12:18, reinforces 12:18 of 30, held once"),
        ("host 2", "0:4, adds redundancy to 0:4 of 30, held twice"),
    )
    assert facts(answer)["hosts"] == "none is needed: every layer is Robust"
    assert "and 4 more hosts" in dict(what_if_host(view, only(view), 700 * MIB, 8).facts).values()


def test_what_loads_counts_as_held_when_a_host_comes() -> None:
    view = planned(node(1, (0, 30)), node(2, (0, 20), state="loading"))
    answer = what_if_host(view, only(view), 2 * 10**9)
    assert answer.headline == "it would take layers 15:30 of 30; Fragile -> Robust"
    assert facts(answer)["note"] == "0:20 is being loaded by 1 host: that counts as held soon"
    # What is on the banner comes first: only then what loads is reckoned with.
    view = planned(node(1, (0, 30)), node(2, (0, 30), state="claiming"))
    answer = what_if_host(view, only(view), 2 * 10**9)
    assert answer.headline.endswith("; stays Robust")
    assert [(name, model.state) for name, model in answer.steps] == [
        ("now", only(view).state),
        ("soon", "Robust"),
        ("then", "Robust"),
    ]
    assert only(view).state == "Fragile"


def test_too_small_a_host_takes_nothing() -> None:
    view = thirds()
    answer = what_if_host(view, only(view), 50 * MIB)
    assert answer.headline == "it would take nothing"
    assert facts(answer)["why"] == (
        "memory cap 50.0 MiB is too small: one layer of tiny-llama needs 110.0 MiB "
        "(weights 100.0 MiB + KV 10.0 MiB)"
    )


def test_a_node_that_tells_no_sizes_gets_coverage_only() -> None:
    view = network(node(1, (0, 15)), node(2, (15, 30)))
    answer = what_if_node(view, only(view), {node(1).node})
    assert answer.headline == "if it goes: gap 0:15, model Incomplete"
    assert facts(answer)["next"].startswith("who would take over is not known: the node here is")
    answer = what_if_host(view, only(view), 2**31)
    assert answer.headline.startswith("no forecast: the node here is of a version")
    other = planned(node(1, (0, 15)))
    odd = replace(only(view), shape=only(replace(other)).shape, layers=29, replicas=(1,) * 29)
    assert what_if_host(view, odd, 2**31).headline.startswith("no forecast")


def test_hosts_are_read_as_typed() -> None:
    assert parse_hosts("2 GB") == (2 * 10**9, 1)
    assert parse_hosts("500MB") == (500 * 10**6, 1)
    assert parse_hosts(" 3 x 1.5GiB") == (3 * 2**29, 3)
    assert parse_hosts("12×2g") == (2**31, 12)
    for text in ("", "x", "many", "0 x 2 GB", "101 x 2 GB", "2", "-3 x 2 GB"):
        with pytest.raises(UsageError):
            parse_hosts(text)
    assert with_count("2 GB", 1) == "2 x 2 GB"
    assert with_count("2 x 2 GB", -1) == "2 GB"
    assert with_count("2 GB", -1) == "2 GB"
    assert with_count("100 x 2 GB", 1) == "100 x 2 GB"
    assert with_count("nonsense", 1) == "nonsense"


@pytest.mark.parametrize("width", [20, 40, 56, 76, 120])
def test_every_line_fits(width: int) -> None:
    view = thirds()
    for answer in (gone(view, 1), gone(view, 3, 4), what_if_host(view, only(view), 2**30, 5)):
        assert max(len(plain(line)) for line in what_if_lines(answer, width)) <= max(25, width)


def test_ids_and_names_from_strangers_do_no_harm() -> None:
    odd = node(1, (0, 30), node="not\x1b[2Jhex", short="\x1b[31mred")
    view = planned(odd, node(2, (0, 30)), node(3, (10, 20)))
    answer = what_if_node(view, only(view), {odd.node})
    told = "\n".join(plain(line) for line in what_if_lines(answer, 80))
    assert "\x1b" not in told
    assert (
        gone(view, 2).headline
        == "if it goes: layers 0:10 and 20:30 have one holder, model Fragile"
    )
