"""Real processes find each other: several sentinels, memory, network keys, allow lists, a LAN."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.namespaces import Namespaces, namespaces_missing
from tests.e2e.processes import Processes
from tests.services.tiny_model import make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

HERE = ("--listen", "127.0.0.1:0")


class Town(Processes):
    """Processes that see each other, or not."""

    def node(self, name: str, *arguments: str, role: str = "node") -> str:
        """Start a node on loopback; its address."""
        self.start(name, role, *HERE, *arguments)
        return self.address(name)

    def stop(self, name: str, number: int = signal.SIGTERM) -> float:
        """End a node; how long that took."""
        process = self.running.pop(name)
        begun = time.monotonic()
        process.send_signal(number)
        code = process.wait(20)
        assert code == (0 if number == signal.SIGTERM else -number), self.log(name)
        return time.monotonic() - begun

    def seen_by(self, name: str, *extra: str, within: Sequence[str] = ()) -> set[str]:
        """Ids of the nodes that live according to a node."""
        state = str(self.directory / name)
        done = self.command("status", "--json", "--state-dir", state, *extra, within=within)
        assert done.returncode == 0, done.stderr
        nodes: list[dict[str, Any]] = json.loads(done.stdout)["nodes"]
        return {node["node"] for node in nodes if node["liveness"] != "dead"}

    def id_of(self, name: str) -> str:
        """The full id that a node printed when it started."""
        return self.log(name).partition(" listens on ")[0].split()[-1]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


def test_a_newcomer_joins_through_the_sentinel_that_lives(town: Town) -> None:
    first = town.node("first", role="sentinel")
    second = town.node("second", "--bootstrap", first, role="sentinel")
    both = ("--bootstrap", f"{first},{second}")
    town.node("old", *both)
    town.until(lambda: len(town.seen_by("old")) == 3)
    town.stop("first", signal.SIGKILL)
    town.node("new", *both)
    town.until(lambda: {town.id_of("second"), town.id_of("old")} <= town.seen_by("new"))
    asked = town.command("models", *both)
    assert asked.returncode == 0, asked.stderr
    # It comes back at its old address, and everybody finds it there.
    town.start("first", "sentinel", "--listen", first)
    town.until(lambda: len(town.seen_by("new")) == 4)


def test_a_node_that_is_restarted_without_bootstrap_remembers_the_others(town: Town) -> None:
    sentinel = town.node("sentinel", role="sentinel")
    town.node("node", "--bootstrap", sentinel)
    town.until(lambda: len(town.seen_by("node")) == 2)
    own = town.id_of("node")
    town.stop("node")
    # A client without --bootstrap asks those that its state directory remembers.
    asked = town.command("status", "--json", "--state-dir", str(town.directory / "node"))
    assert town.id_of("sentinel") in asked.stdout, asked.stderr
    town.node("node")
    town.until(lambda: len(town.seen_by("node")) == 2)
    assert town.id_of("node") == own
    for damaged in (town.directory / "node").glob("nodes-*.json"):
        damaged.write_bytes(b"\xff" * 1000)
    town.stop("node", signal.SIGKILL)
    town.node("node", "--bootstrap", sentinel)
    town.until(lambda: len(town.seen_by("node")) == 2)
    assert "a new one begins" in town.log("node")


def test_only_who_has_the_key_gets_in_and_may_ask(town: Town, tmp_path: Path) -> None:
    tiny = make_tiny_model(tmp_path / "tiny")
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("correct horse battery staple\n")
    wrong.write_text("incorrect\n")
    keyed = ("--network", "ours", "--network-key-file", str(right))
    sentinel = town.node("sentinel", *keyed, role="sentinel")
    joined = ("--bootstrap", sentinel, "--network", "ours")
    town.node(
        "host", *joined, "--network-key-file", str(right), "--model", str(tiny.path),
        "--dtype", "fp32", "--threads", "1", role="host",
    )  # fmt: skip
    town.node("intruder", *joined, "--network-key-file", str(wrong))
    town.node("keyless", *joined)
    asked = ("query", *joined, "--model", tiny.path.name, "--prompt", words(5), "--raw", "--json")
    ask = (*asked, "--max-tokens", "4", "--ignore-eos")

    def answered() -> bool:
        return town.command(*ask, "--network-key-file", str(right)).returncode == 0

    town.until(answered)
    for arguments, word in (
        (ask, "on a network with a key; give this node the same --network-key"),
        ((*ask, "--network-key-file", str(wrong)), "another network key"),
    ):
        refused = town.command(*arguments)
        assert refused.returncode == 5
        assert word in refused.stderr
    assert town.seen_by("sentinel", *keyed) == {town.id_of("sentinel"), town.id_of("host")}
    town.until(lambda: "another network key" in town.log("intruder"))
    town.until(lambda: "give this node the same --network-key" in town.log("keyless"))
    town.until(lambda: "it has another network key" in town.log("sentinel"))
    logs = "".join(map(town.log, town.running))
    assert "battery" not in logs
    assert "incorrect" not in logs


def test_an_allow_list_keeps_others_out_but_lets_the_owner_in(town: Town) -> None:
    sentinel = town.node("sentinel", role="sentinel")
    joined = ("--bootstrap", sentinel)
    town.node("friend", *joined)
    town.node("stranger", *joined)
    friends = town.directory / "friends"
    friends.write_text(f"{town.id_of('sentinel')}  # the sentinel\n{town.id_of('friend')}\n")
    strict = town.node("strict", *joined, "--allow", str(friends))
    expected = {town.id_of(name) for name in ("sentinel", "friend", "strict")}
    town.until(lambda: town.seen_by("strict") == expected)
    town.until(lambda: len(town.seen_by("friend")) == 4)
    refused = town.command("models", "--bootstrap", strict)
    assert refused.returncode == 6
    assert "allow list" in refused.stderr
    # The error names the id to add: that of this state directory's owner.
    added = refused.stderr.split(" have ")[1].split()[0]
    town.stop("strict")
    friends.write_text(f"{friends.read_text()}{added}\n")
    strict = town.node("strict", *joined, "--allow", str(friends))
    assert town.command("models", "--bootstrap", strict).returncode == 0


@pytest.fixture
def lan() -> Iterator[Namespaces]:
    if problem := namespaces_missing():
        pytest.skip(problem)
    with Namespaces("a", "b", "c") as lan:
        yield lan


def test_on_a_lan_nothing_needs_to_be_told(town: Town, lan: Namespaces) -> None:
    for name in ("a", "b"):
        town.start(name, "node", "--mdns", within=lan.within(name))
        town.address(name)
    both = {town.id_of("a"), town.id_of("b")}
    town.until(lambda: town.seen_by("a", within=lan.within("a")) == both)
    town.until(lambda: town.seen_by("b", within=lan.within("b")) == both)
    # A client without a node finds them as well.
    asked = town.command(
        "status", "--json", "--mdns", "--state-dir", str(town.directory / "c"),
        within=lan.within("c"),
    )  # fmt: skip
    assert town.id_of("a") in asked.stdout, asked.stderr
    for name in ("a", "b"):
        assert town.stop(name) < 5


def test_on_a_lan_networks_with_keys_keep_to_themselves(town: Town, lan: Namespaces) -> None:
    for name, key in (("a", "one"), ("b", "one"), ("c", "other")):
        town.start(name, "node", "--mdns", "--network-key", key, within=lan.within(name))
        town.address(name)
    both = {town.id_of("a"), town.id_of("b")}
    key = ("--network-key", "one")
    town.until(lambda: town.seen_by("a", *key, within=lan.within("a")) == both)
    town.until(lambda: "another network key" in town.log("c"))
    assert town.seen_by("a", *key, within=lan.within("a")) == both


def test_no_multicast_is_no_reason_to_fail(town: Town, lan: Namespaces) -> None:
    """A machine with a card that is down, as in some containers."""
    lan.cut("a")
    town.start("a", "node", "--mdns", within=lan.within("a"))
    town.address("a")
    assert town.seen_by("a", within=lan.within("a")) == {town.id_of("a")}
    assert town.stop("a") < 5
