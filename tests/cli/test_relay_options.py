"""How others are to reach a node: what the command line takes, and what it prints of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from diffuse_core.cli import nodes
from diffuse_core.cli.coverage_text import unreachable_lines
from diffuse_core.cli.look import _met_at
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.relayed_address import RelayedAddress
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import NodeView
from diffuse_core.errors import UsageError
from diffuse_core.settings import PUBLIC

SENTINEL = Identity(b"s" * 32).node
RELAYED = str(RelayedAddress(SENTINEL, "192.0.2.1:9440"))


def options(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """What a command makes of its arguments, instead of running a node."""
    made: list[Any] = []

    def run(given: dict[str, Any], role: Any) -> int:
        made.append(nodes._options(given, role))
        return 0

    monkeypatch.setattr(nodes, "_run", run)
    command = getattr(nodes, arguments[0])
    result = CliRunner().invoke(command, arguments[1:], catch_exceptions=True)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code in (0, 2), result.output
    return made[0] if made else result.output


@pytest.mark.parametrize("command", [("host", "--model", "demo"), ("node",)])
def test_relaying_is_a_choice(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    assert options(monkeypatch, *command).relay == "auto"
    for mode in ("auto", "always", "never"):
        assert options(monkeypatch, *command, "--relay", mode).relay == mode
    assert "'sometimes' is not one of" in options(monkeypatch, *command, "--relay", "sometimes")


def test_a_sentinel_is_not_relayed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options(monkeypatch, "sentinel").relay == "auto"
    assert "No such option" in options(monkeypatch, "sentinel", "--relay", "always")


def test_to_tell_an_address_and_to_tell_none_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("node", "--public-addr", "a.example.org:9440")
    assert options(monkeypatch, *given).public == ("a.example.org:9440",)
    assert options(monkeypatch, *given, "--relay", "never").relay == "never"
    with pytest.raises(UsageError, match="give one of them"):
        options(monkeypatch, *given, "--relay", "always")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("203.0.113.5:9440", ("203.0.113.5:9440",)),
        ("ws://203.0.113.5:9440/", ("203.0.113.5:9440",)),
        ("203.0.113.5", ("203.0.113.5",)),
        ("[2001:db8::1]:9440", ("[2001:db8::1]:9440",)),
        ("[2001:db8::1]", ("[2001:db8::1]",)),
        ("a.example.org:1, 203.0.113.5:2", ("a.example.org:1", "203.0.113.5:2")),
    ],
)
def test_every_form_of_a_public_address(
    monkeypatch: pytest.MonkeyPatch, given: str, meant: tuple[str, ...]
) -> None:
    assert options(monkeypatch, "node", "--public-addr", given).public == meant


@pytest.mark.parametrize("given", ["203.0.113.5:0", "", "a b:1", "203.0.113.5:99999"])
def test_no_public_address(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    with pytest.raises(UsageError):
        options(monkeypatch, "node", "--public-addr", given)


def test_the_help_has_an_example() -> None:
    for command in (nodes.host, nodes.node):
        shown = CliRunner().invoke(command, ["--help"]).output
        assert "--relay always" in shown
        assert "[auto|always|never]" in shown


@pytest.mark.parametrize(
    ("reachable", "shown"),
    [
        (("192.0.2.7:9440",), "--bootstrap 192.0.2.7:9440"),
        ((RELAYED, "192.0.2.7:9440"), "--bootstrap 192.0.2.7:9440"),
        ((RELAYED,), ""),
        ((), ""),
    ],
)
def test_nobody_is_told_to_join_at_a_relayed_address(
    capsys: pytest.CaptureFixture[str], reachable: tuple[str, ...], shown: str
) -> None:
    nodes._tell("host", PUBLIC, "ab" * 32, "0.0.0.0:9440", reachable)
    told = capsys.readouterr().out
    assert shown in told
    assert ("others join with" in told) == bool(shown)
    assert "relay:" not in told


@pytest.mark.parametrize(
    ("addresses", "relays", "shown"),
    [
        ((), (), "unreachable"),
        (("192.0.2.7:9440",), (), "192.0.2.7:9440"),
        ((), ("1a2b3c4d" + "0" * 56,), "via 1a2b3c4d"),
        (("10.0.0.2:1",), ("1a2b3c4d" + "0" * 56, "f" * 64), "via 1a2b3c4d, ffffffff"),
    ],
)
def test_status_tells_through_whom_a_node_is_met(
    addresses: tuple[str, ...], relays: tuple[str, ...], shown: str
) -> None:
    view = NodeView(
        node="ab" * 32,
        short="abababab",
        role="host",
        liveness="alive",
        last_seen_s=0.0,
        version="test",
        addresses=addresses,
        relays=relays,
    )
    assert _met_at(view) == shown
    dead = msgspec.structs.replace(view, liveness="dead")
    assert _met_at(dead) == ("-" if shown == "unreachable" else shown)


def test_whose_layers_cannot_be_had_is_said_in_a_line() -> None:
    host = {"role": "host", "liveness": "alive", "last_seen_s": 0.0, "version": "test"}
    cut_off = [
        NodeView(node=f"{n}" * 64, short=f"{n}" * 8, slice=Slice(0, 3), **host) for n in range(6)
    ]
    lines = unreachable_lines(cut_off[:1])
    assert " ".join(lines).startswith("00000000 holds layers, but cannot be dialled: no sentinel ")
    assert lines[1].startswith("  start one with `diffuse sentinel`")
    assert max(map(len, lines)) <= 80
    many = " ".join(unreachable_lines(cut_off))
    assert many.startswith("00000000, 11111111, 22222222, 33333333 and 2 more hold layers")
    met = msgspec.structs.replace(cut_off[0], relays=("a" * 64,))
    idle = msgspec.structs.replace(cut_off[0], slice=None)
    gone = msgspec.structs.replace(cut_off[0], liveness="dead")
    assert unreachable_lines([met, idle, gone]) == []
