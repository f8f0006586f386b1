"""What is written today is understood by the rules of earlier versions (see tests.wire)."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import inspect

from diffuse_core.domain.messages import AnyMessage, Ping
from diffuse_core.domain.records import Record
from tests.fuzz.valid_values import ValidValues
from tests.wire.old_rules import Rules
from tests.wire.recording import folder, messages
from tests.wire.test_recorded import OLD, VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(5)
EXPECTED = ("role in ChatMessage: 'tool' is none of",)
"""What older nodes do not take, by design: it is sent by who asks for what they do not have."""


def rules_of(version: Path) -> Rules:
    lines = json.loads((version / "rules.json").read_text(encoding="utf-8"))
    return Rules({name: about for line in lines for name, about in line.items()})


def raw(value: object) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@OLD
def test_messages_of_today_are_understood_by_older_nodes(version: Path) -> None:
    rules = rules_of(version)
    seen = set()
    for seed in SEEDS:
        for message in messages(seed):
            name = type(message).__name__
            if name not in rules.structs:
                continue  # A kind that came later is ignored whole.
            seen.add(name)
            told = rules.problem(raw(message), {"struct": name})
            assert told is None or any(known in told for known in EXPECTED), told
    assert seen == {name for name, about in rules.structs.items() if about["tag"][0] == "t"}


@OLD
def test_records_of_today_are_understood_by_older_nodes(version: Path) -> None:
    rules, values = rules_of(version), ValidValues(random.Random(1))
    for _ in range(200):
        assert rules.problem(raw(values.make(Record)), {"struct": "Record"}) is None


def test_nothing_changes_without_a_new_version() -> None:
    """Else raise PROTOCOL_MINOR, or the major where its docstring says so."""
    if folder() in VERSIONS:
        today = Rules()
        for kind in (*AnyMessage.__args__, Record):
            today.describe(inspect.type_info(kind))
        assert json.loads(json.dumps(today.structs)) == rules_of(folder()).structs


def test_the_rules_say_what_msgspec_says() -> None:
    """Of values with one part changed, both refuse the same."""
    rules, rng = Rules(), random.Random(3)
    kinds = {kind.__name__: kind for kind in AnyMessage.__args__}
    for kind in kinds.values():
        rules.describe(inspect.type_info(kind))
    agreed = {True: 0, False: 0}
    for message in messages(1):
        name = type(message).__name__
        for _ in range(8):
            value = raw(message)
            spoil(value, rng)
            told = rules.problem(value, {"struct": name})
            assert taken(value, kinds[name]) == (told is None), (value, told)
            agreed[told is None] += 1
    assert min(agreed.values()) > 100


def spoil(value: dict[str, Any], rng: random.Random) -> None:
    """Change one field: leave it out, add one, or give it something else."""
    names = sorted(value.keys() - {"t", "type"})
    name = rng.choice(names or ["more"])
    while isinstance(value.get(name), dict) and len(value[name]) > 1 and rng.random() < 0.7:
        value = value[name]
        name = rng.choice(sorted(value.keys() - {"t", "type"}))
    others = [None, -1, 0, 2**63, 1.5, "", "text", "x" * 2000, b"", b"0" * 16, True, [], {}]
    if rng.random() < 0.3:
        value["more"] = rng.choice(others)
    elif rng.random() < 0.2:
        value.pop(name, None)
    else:
        value[name] = rng.choice(others)


def taken(value: Any, kind: type) -> bool:
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    except (msgspec.DecodeError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nonce": 2**32}, "nonce in Ping"),
        ({"nonce": "1"}, "nonce in Ping"),
        ({"t": "pong"}, "'pong' is not 'ping'"),
        ({"rumours": [[b"x" * 32, 1]]}, "liveness in Rumour is missing"),
        ({"rumours": [[b"x" * 32, 1, "well"]]}, "'well' is none of"),
        ({"later": {"a": 1}}, None),
        ({"rumours": [[b"x" * 32, 1, "alive", "later"]]}, None),
    ],
)
def test_what_the_rules_refuse(change: dict[str, Any], told: str | None) -> None:
    rules = Rules()
    rules.describe(inspect.type_info(Ping))
    found = rules.problem(raw(Ping(1)) | change, {"struct": "Ping"})
    assert found is None if told is None else told in (found or "")
