"""What earlier versions wrote is read today as it was meant; see tests.wire.__main__."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from diffuse_core.domain import channel
from diffuse_core.domain.bundle import open_bundle
from diffuse_core.domain.channel import Handshake, HandshakeFailed
from diffuse_core.domain.codec import decode
from diffuse_core.domain.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, AnyMessage
from diffuse_core.domain.records import SignedRecord, open_record
from tests.wire.recording import KEY, RECORDED, credentials, folder, plain

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.channel import Credentials

VERSIONS = sorted(place for place in RECORDED.iterdir() if place.is_dir())
OLD = pytest.mark.parametrize("version", VERSIONS, ids=lambda place: place.name)


def read(version: Path, part: str) -> list[Any]:
    return list(json.loads((version / f"{part}.json").read_text(encoding="utf-8")))


def lacking(recorded: Any, today: Any, where: str = "") -> list[str]:
    """Where a value of today differs from a recorded one; it may have fields more."""
    if isinstance(recorded, dict) and isinstance(today, dict):
        return [
            told
            for name, value in recorded.items()
            for told in lacking(value, today.get(name, "nothing"), f"{where}.{name}")
        ]
    if isinstance(recorded, list) and isinstance(today, list) and len(recorded) == len(today):
        pairs = zip(recorded, today, strict=True)
        return [told for at, pair in enumerate(pairs) for told in lacking(*pair, f"{where}[{at}]")]
    return [] if recorded == today else [f"{where}: {today!r} was {recorded!r}"]


@OLD
def test_every_frame_is_read_as_it_was_meant(version: Path) -> None:
    for sample in read(version, "frames"):
        message, body = decode(bytes.fromhex(sample["frame"]))
        assert lacking(sample["value"], plain(message)) == []
        assert bytes(body).hex() == sample["body"]


@OLD
def test_every_kind_of_that_version_is_there_and_every_event(version: Path) -> None:
    tags = {sample["value"]["t"] for sample in read(version, "frames")}
    rules = {name: about for line in read(version, "rules") for name, about in line.items()}
    known = {about["tag"][1] for about in rules.values() if about["tag"][0] == "t"}
    assert tags == known
    assert tags <= {kind.__struct_config__.tag for kind in AnyMessage.__args__}
    events = {
        sample["value"]["event"]["type"]
        for sample in read(version, "frames")
        if sample["value"]["t"] == "generated"
    }
    assert events == {about["tag"][1] for about in rules.values() if about["tag"][0] == "type"}


@OLD
def test_records_are_believed(version: Path) -> None:
    for sample in read(version, "records"):
        signed = msgspec.msgpack.decode(bytes.fromhex(sample["signed"]), type=SignedRecord)
        opened = open_record(signed)
        assert opened is not None
        assert lacking(sample["value"], plain(opened)) == []
        broken = msgspec.structs.replace(signed, payload=signed.payload[:-1] + b"\x00")
        assert open_record(broken) is None or broken == signed


@OLD
def test_bundles_are_opened(version: Path) -> None:
    for sample in read(version, "bundles"):
        bundle = open_bundle(bytes.fromhex(sample["data"]), sample["digest"])
        assert lacking(sample["value"], plain(bundle)) == []
        assert base64.b64decode(sample["value"]["tokenizer_json"]) == bundle.tokenizer_json


def as_recorded(sample: dict[str, Any], number: int) -> Credentials:
    """The credentials of a recorded node: what it shows is what it showed then."""
    made = credentials(number, KEY if sample["keyed"] else None)
    made.hello = bytes.fromhex(sample["hello"])
    roles = ("dialler", "listener")
    for role, proof in zip(roles, sample["proofs"], strict=True):
        made._proofs[role, sample["way"]] = bytes.fromhex(proof)
    return made


def sides(
    sample: dict[str, Any], dialler: Credentials, listener: Credentials
) -> tuple[Handshake, Handshake]:
    return (
        Handshake(dialler, "dialler", b"\x11" * 32, listener.node, sample["way"]),
        Handshake(listener, "listener", b"\x22" * 32, None, sample["way"]),
    )


def greet(a: Handshake, b: Handshake) -> list[bytes]:
    first = a.start()
    second = b.receive(first)
    third = a.receive(second)
    assert b.receive(third) is None
    return [first, second, third]


@OLD
def test_handshakes_are_the_same_to_the_byte(version: Path) -> None:
    for sample in read(version, "handshakes"):
        a, b = sides(sample, as_recorded(sample, 1), as_recorded(sample, 2))
        assert [message.hex() for message in greet(a, b)] == sample["messages"]
        there, back = a.session(), b.session()
        assert [there.seal(b"there", 0.0).hex(), back.seal(b"back", 0.0).hex()] == sample["sealed"]
        assert back.open(bytes.fromhex(sample["sealed"][0])) == b"there"


@OLD
@pytest.mark.parametrize("older", ["dialler", "listener"])
def test_a_node_of_that_version_and_one_of_today_meet(version: Path, older: str) -> None:
    for sample in read(version, "handshakes"):
        key = KEY if sample["keyed"] else None
        dialler = as_recorded(sample, 1) if older == "dialler" else credentials(1, key)
        listener = as_recorded(sample, 2) if older == "listener" else credentials(2, key)
        a, b = sides(sample, dialler, listener)
        greet(a, b)
        assert (a.remote, b.remote) == (listener.node, dialler.node)


def test_a_later_minor_version_is_met_and_another_major_is_refused_clearly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    today = credentials(2)
    monkeypatch.setattr(channel, "PROTOCOL_MINOR", PROTOCOL_MINOR + 1)
    later = credentials(1)
    later.hello = later.hello[:0] + msgspec.msgpack.encode(
        [*msgspec.msgpack.decode(later.hello), "something that later greetings have"]
    )
    sample = {"way": "direct"}
    greet(*sides(sample, later, today))
    for major in (PROTOCOL_MAJOR + 1, PROTOCOL_MAJOR - 1):
        other = channel.Credentials(later._identity, "wire", b"\x21" * 32, major)
        a, b = sides(sample, other, today)
        with pytest.raises(HandshakeFailed, match=f"speaks protocol {major}.*update the older"):
            b.receive(a.start())


def test_the_running_version_is_recorded_or_newer_than_all() -> None:
    versions = [tuple(map(int, place.name.split("-")[1].split("."))) for place in VERSIONS]
    assert max(versions) <= (PROTOCOL_MAJOR, PROTOCOL_MINOR)
    assert any(major == PROTOCOL_MAJOR for major, _ in versions)
    assert folder().name == f"protocol-{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}"
