"""Records that are rightly signed around any payload, as a hostile node signs its own."""

from __future__ import annotations

import random

import msgspec

from diffuse_core.domain.identity import Identity
from diffuse_core.domain.records import (
    MAX_RECORD_BYTES,
    Record,
    SignedRecord,
    acceptable,
    open_record,
    seal,
)
from diffuse_core.domain.relayed_address import parse_relayed
from tests.fuzz.valid_values import ValidValues

_SIGNER = Identity(bytes([3]) * 32)
_FOREIGN = Identity(bytes([4]) * 32)


def target(data: bytes) -> str:
    """A record opens under its own node's signature only, and says the same when sealed again."""
    signed = SignedRecord(data, _SIGNER.sign("record", data))
    record = open_record(signed)
    if record is None:
        return "refused"
    assert record.node == _SIGNER.node
    assert open_record(SignedRecord(data, _FOREIGN.sign("record", data))) is None
    assert open_record(SignedRecord(data, _SIGNER.sign("channel", data))) is None
    again = seal(record, _SIGNER)
    opened = open_record(again)
    assert opened is not None
    assert msgspec.msgpack.encode(opened) == again.payload
    assert acceptable(record) == (len(again.payload) <= MAX_RECORD_BYTES)
    for address in record.addresses:
        relayed = parse_relayed(address)
        assert relayed is None or str(relayed) == address
    return "farewell" if record.left else record.role


def samples() -> dict[str, bytes]:
    """Records of every role, with and without a Slice."""
    found = {}
    for number in range(8):
        record = ValidValues(random.Random(number)).make(Record)
        # Some text is drawn that no terminal may get, which is what one sample in eight is for.
        record = msgspec.structs.replace(record, node=_SIGNER.node)
        found[f"record-{number}"] = msgspec.msgpack.encode(record)
    relayed = f"relay:{'ab' * 32}@192.0.2.1:9440"
    plain = Record(_SIGNER.node, 5, "host", "0.1", (relayed, "[2001:db8::1]:9440"))
    found["relayed"] = msgspec.msgpack.encode(plain)
    found["farewell"] = msgspec.msgpack.encode(msgspec.structs.replace(plain, left=True))
    # Deeper than Python goes, in a field that is not known here.
    fields = found["relayed"][0]
    assert 0x80 < fields < 0x8F
    found["deep"] = (
        bytes([fields + 1]) + found["relayed"][1:] + b"\xa1x" + b"\x91" * 1500 + b"\xc0"
    )
    return found
