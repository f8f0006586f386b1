"""What doctor makes of addresses, sentinels, models, versions and the node running here."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from diffuse_core.cli.doctor.dialled import _connect
from diffuse_core.cli.doctor.network import (
    AddressFacts,
    HereFacts,
    SentinelFacts,
    judge_address,
    judge_here,
    judge_lan,
    judge_look,
    judge_models,
    judge_reach,
    judge_sentinels,
    judge_versions,
)
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ModelView, NetworkView, NodeView
from tests.cli.test_doctor_machine import told

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = "10.0.0.1:9440"
NODE = NodeView(
    node="ab" * 32,
    short="abababab",
    role="host",
    liveness="alive",
    last_seen_s=0.0,
    version="0.2.0",
)
MODEL = ModelView(
    id="m", fingerprint="f" * 64, contract="bf16", layers=4, context=128, state="Robust",
    servable=True, missing=(), replicas=(2, 2, 2, 2), min_replicas=2, target_replicas=2, hosts=2,
)  # fmt: skip


def view(*models: ModelView, nodes: tuple[NodeView, ...] = (NODE,)) -> NetworkView:
    return NetworkView(taken_at=0.0, me=None, nodes=nodes, models=models)


@pytest.mark.parametrize(
    ("facts", "state", "word"),
    [
        (AddressFacts(AT, "done", node="ab" * 32, open_s=0.01, rtt_s=0.002), "ok", "2.0 ms"),
        (AddressFacts(AT, "resolve", "no host is called 'x'"), "problem", "getent"),
        (AddressFacts(AT, "connect", "no answer within 3 s"), "problem", "firewalls"),
        (AddressFacts(AT, "handshake", "other", "network"), "problem", "the same --network"),
        (AddressFacts(AT, "handshake", "other", "key"), "problem", "keys differ"),
        (AddressFacts(AT, "handshake", "other", "keyless"), "problem", "--network-key-file"),
        (AddressFacts(AT, "handshake", "other", "keyed"), "problem", "take --network-key away"),
        (AddressFacts(AT, "handshake", "other", "version"), "problem", "update"),
        (AddressFacts(AT, "handshake", f"{AT} hung up; try again"), "problem", "try again"),
    ],
)
def test_an_address(facts: AddressFacts, state: str, word: str) -> None:
    told(judge_address(facts), state, word)


def test_what_others_said_cannot_command_a_terminal() -> None:
    finding = judge_address(AddressFacts(AT, "handshake", "\x1b]0;owned\x07"))
    assert "\x1b" not in finding.found


def test_whether_a_network_was_found() -> None:
    told(judge_look(view(MODEL), "", asked=True), "ok", "1 node, of them 1 host; 1 model")
    told(judge_look(None, "nobody", asked=True), "problem", "--bootstrap")
    told(judge_look(None, "nobody", asked=False), "note", "nobody")


def test_the_lan() -> None:
    told(judge_lan([], 0, wanted=False), "ok", "--no-mdns")
    told(judge_lan([], 0, wanted=True), "note", "no interface")
    told(judge_lan(["10.0.0.2"], 1, wanted=True), "ok", "1 node heard")
    told(judge_lan(["10.0.0.2"], 0, wanted=True, why="not permitted"), "note", "not permitted")


def test_sentinels() -> None:
    told(judge_sentinels([]), "note", "diffuse sentinel")
    good = SentinelFacts("aa", 0.01, 3, relayed=True)
    told(judge_sentinels([good, SentinelFacts("bb", None)]), "ok", "relays for 3 (tried: works)")
    told(judge_sentinels([SentinelFacts("bb", None)]), "warning", "does not answer")
    told(judge_sentinels([SentinelFacts("aa", 0.01, 1, relayed=False)]), "warning", "in vain")


def test_models() -> None:
    (finding,) = judge_models(view(MODEL))
    told(finding, "ok", "Robust")
    lacking = msgspec.structs.replace(
        MODEL, state="Incomplete", servable=False, missing=(Slice(1, 3),), min_replicas=0
    )
    (finding,) = judge_models(view(lacking))
    told(finding, "warning", "layers 1:3")
    (finding,) = judge_models(view(msgspec.structs.replace(MODEL, state="Fragile")))
    told(finding, "note", "one more host")
    (finding,) = judge_models(view())
    told(finding, "note", "diffuse host")
    assert judge_models(view(*[MODEL] * 9))[-1].found == "and 4 more"


def test_hosts_that_nobody_can_dial_are_told() -> None:
    lost = msgspec.structs.replace(NODE, slice=Slice(0, 4), addresses=(), relays=())
    *_, finding = judge_models(view(MODEL, nodes=(lost,)))
    told(finding, "warning", "diffuse sentinel")


def test_versions() -> None:
    told(judge_versions([NODE], "0.2.0"), "ok", "all run 0.2.0")
    told(judge_versions([NODE], "0.2.1"), "ok", "also 0.2.0")
    told(judge_versions([NODE], "0.4.0"), "note", "update the oldest")


def test_the_node_here() -> None:
    (finding,) = judge_here(HereFacts(), "0.2.0")
    told(finding, "ok", "none runs")
    (finding,) = judge_here(HereFacts(stale=True), "0.2.0")
    told(finding, "note", "killed")
    (finding,) = judge_here(HereFacts(holder=9), "0.2.0")
    told(finding, "note", "ps -p 9")
    (finding,) = judge_here(HereFacts(pid=9, address=AT, why="it says nothing"), "0.2.0")
    told(finding, "problem", "kill 9")
    here, reach = judge_here(HereFacts(pid=9, address=AT, me=NODE), "0.2.0")
    told(here, "ok", "version 0.2.0")
    told(reach, "problem", "nobody can dial it")
    here, _ = judge_here(HereFacts(pid=9, address=AT, me=NODE), "0.3.0")
    told(here, "note", "0.3.0 is installed")


def test_how_the_node_here_is_met() -> None:
    direct = msgspec.structs.replace(NODE, addresses=(AT,))
    told(judge_reach(direct), "ok", AT)
    relayed = msgspec.structs.replace(direct, relays=("cd" * 32,))
    told(judge_reach(relayed), "note", "through sentinel cdcdcdcd")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def info(address: tuple[str, int]) -> tuple[int, int, int, str, Any]:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)


async def test_a_name_leads_to_the_first_of_its_addresses_that_answers(
    listening: socket.socket,
) -> None:
    with contextlib.closing(socket.socket()) as bound:
        # Bound and not listened at: nobody else takes it, and who connects is refused.
        bound.bind(("127.0.0.1", 0))
        deaf, good = info(bound.getsockname()), info(listening.getsockname())
        await _connect([deaf, good])
        with pytest.raises(ConnectionRefusedError):
            await _connect([deaf])
    with pytest.raises(OSError, match="no address"):
        await _connect([])
