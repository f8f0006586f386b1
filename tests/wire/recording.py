"""What a version writes: frames of every kind, records, a bundle, handshakes; with their values.

Everything is drawn from fixed seeds. It uses only what every version has, because it runs with the
code of the version that is recorded.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from diffuse_core.domain.bundle import Bundle, bundle_digest, encode_bundle
from diffuse_core.domain.channel import Credentials, Handshake
from diffuse_core.domain.codec import decode, encode
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.messages import PROTOCOL_MAJOR, PROTOCOL_MINOR, AnyMessage
from diffuse_core.domain.records import Record, open_record, seal
from tests.fuzz.valid_values import ValidValues
from tests.wire.old_rules import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = Path(__file__).with_name("recorded")
SAMPLES = 4
"""Of every kind of message."""
MORE = {"Generated": 30}
"""Of kinds that bring one of many things."""
TRIES = 2000
BODY = bytes(range(64))
NETWORK = "wire"
KEY = b"\x07" * 32


def folder() -> Path:
    """Where the recording of the running version belongs."""
    return RECORDED / f"protocol-{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}"


def record(place: Path) -> None:
    """Write the recording of the running version. What is there is frozen.

    Raises:
        FileExistsError: this version was recorded before.
    """
    place.mkdir(parents=True)
    for name, make in _PARTS.items():
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in make())
        (place / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def plain(value: object) -> Any:
    """A value as JSON shows it; bytes in Base64, fields by their names on the wire."""
    return json.loads(msgspec.json.encode(value))


def messages(seed: int = 8) -> list[AnyMessage]:
    """Valid messages of every kind that the running version has."""
    values = ValidValues(random.Random(seed))
    kinds: tuple[type[AnyMessage], ...] = AnyMessage.__args__
    return [
        _drawn(values, kind) for kind in kinds for _ in range(MORE.get(kind.__name__, SAMPLES))
    ]


def _drawn(values: ValidValues, kind: type[AnyMessage]) -> AnyMessage:
    for _ in range(TRIES):
        message = values.make(kind)
        try:
            if decode(encode(message))[0] == message:
                return message
        except Exception:  # noqa: BLE001, S112 - two fields that do not fit together
            continue
    raise AssertionError(f"no valid {kind.__name__} was drawn")


def _frames() -> list[Any]:
    made = []
    for at, message in enumerate(messages()):
        body = BODY[: (at % 2) * len(BODY)]
        made.append(
            {"frame": encode(message, body).hex(), "value": plain(message), "body": body.hex()}
        )
    return made


def _rules() -> list[Any]:
    rules = Rules()
    for kind in AnyMessage.__args__:
        rules.describe(inspect.type_info(kind))
    rules.describe(inspect.type_info(Record))
    return [{name: about} for name, about in rules.structs.items()]


def _records() -> list[Any]:
    values, made = ValidValues(random.Random(8)), []
    for number in range(1, 13):
        identity = Identity(bytes([number]) * 32)
        for _ in range(TRIES):
            drawn = msgspec.structs.replace(values.make(Record), node=identity.node)
            signed = seal(drawn, identity)
            if open_record(signed) == drawn:
                made.append(
                    {"signed": msgspec.msgpack.encode(signed).hex(), "value": plain(drawn)}
                )
                break
    return made


def _bundles() -> list[Any]:
    bundles = (
        Bundle(b'{"model": 1}', "{{ messages }}", (1, 2), 128, "<s>", "</s>"),
        Bundle(b"{}", None, (), 1),
    )
    data = [encode_bundle(bundle) for bundle in bundles]
    return [
        {"data": each.hex(), "digest": bundle_digest(each), "value": plain(bundle)}
        for each, bundle in zip(data, bundles, strict=True)
    ]


def credentials(number: int, key: bytes | None = None) -> Credentials:
    """Those of a node of the recorded handshakes."""
    return Credentials(Identity(bytes([number]) * 32), NETWORK, bytes([number + 32]) * 32, key=key)


def _handshakes() -> list[Any]:
    return [_handshake(key, way) for key in (None, KEY) for way in ("direct", "relayed")]


def _handshake(key: bytes | None, way: Any) -> Any:
    dialler, listener = credentials(1, key), credentials(2, key)
    a = Handshake(dialler, "dialler", b"\x11" * 32, listener.node, way)
    b = Handshake(listener, "listener", b"\x22" * 32, None, way)
    first = a.start()
    assert first is not None
    second = b.receive(first)
    assert second is not None
    third = a.receive(second)
    assert third is not None
    b.receive(third)
    there, back = a.session(), b.session()
    return {
        "keyed": key is not None,
        "way": way,
        "hello": dialler.hello.hex(),
        "proofs": [dialler.proof("dialler", way).hex(), listener.proof("listener", way).hex()],
        "messages": [first.hex(), second.hex(), third.hex()],
        "sealed": [there.seal(b"there", 0.0).hex(), back.seal(b"back", 0.0).hex()],
    }


_PARTS: dict[str, Callable[[], list[Any]]] = {
    "frames": _frames,
    "rules": _rules,
    "records": _records,
    "bundles": _bundles,
    "handshakes": _handshakes,
}
