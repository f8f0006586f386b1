"""Records: only what its node signed, byte for byte and within bounds, is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from domain_samples import MODEL, holding, identity, record, signed
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.identity import Identity
from diffuse_core.domain.records import (
    COUNTER_BITS,
    MAX_RECORD_BYTES,
    Holding,
    Record,
    SignedRecord,
    acceptable,
    fingerprint,
    first_sequence,
    open_record,
    record_node,
    seal,
)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_seed_of_another_length_makes_no_identity(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Identity(b"s" * length)


def test_what_was_sealed_is_read_back() -> None:
    sent = record(1, 7, addresses=("127.0.0.1:9440",), holding=holding(10, 20))
    read = open_record(seal(sent, identity(1)))
    assert read == sent
    assert record_node(sent) == identity(1).node


def test_a_record_signed_by_another_node_is_refused() -> None:
    assert open_record(seal(record(1), identity(2))) is None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_can_be_changed(place: int, flip: int) -> None:
    sound = signed(1, 3, addresses=("127.0.0.1:9440",))
    payload = bytearray(sound.payload)
    payload[place % len(payload)] ^= flip
    assert open_record(SignedRecord(bytes(payload), sound.signature)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": -1},
        {"sequence": 2**63},
        {"node": b"short"},
        {"role": "king"},
        {"version": "v" * 33},
        {"addresses": ["a:1"] * 5},
        {"addresses": ["x" * 193]},
        {"capacity": -5},
        {"capacity": 2**51},
        {"load": {"tokens_per_s": float("nan")}},
        {"load": {"sessions": 2**40}},
        {"left": 1},
    ],
)
def test_a_signed_record_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    fields = msgspec.to_builtins(record(1), builtin_types=(bytes,)) | changes
    payload = msgspec.msgpack.encode(fields)
    assert open_record(SignedRecord(payload, identity(1).sign("record", payload))) is None


def test_a_slice_beyond_the_models_layers_is_refused() -> None:
    assert open_record(signed(1, holding=holding(20, 31))) is None
    assert open_record(signed(1, holding=holding(20, 30))) is not None


def test_a_signature_for_another_purpose_does_not_count() -> None:
    payload = signed(1).payload
    assert open_record(SignedRecord(payload, identity(1).sign("channel", payload))) is None


def test_oversized_payloads_do_not_decode() -> None:
    data = msgspec.msgpack.encode(SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=SignedRecord)


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    fields = msgspec.to_builtins(record(1), builtin_types=(bytes,)) | {"mood": "sunny"}
    payload = msgspec.msgpack.encode(fields)
    assert open_record(SignedRecord(payload, identity(1).sign("record", payload))) == record(1)


def test_a_later_boot_outranks_every_record_of_an_earlier_one() -> None:
    assert first_sequence(1001) > first_sequence(1000) + (1 << COUNTER_BITS) - 1
    assert Record(b"\0" * 32, first_sequence(2**42), "host", "0").sequence < 2**63


def test_another_content_or_contract_is_another_fingerprint() -> None:
    prints = {fingerprint(content, contract) for content in "ab" for contract in ("bf16", "int8")}
    assert len(prints) == 4
    assert all(len(one) == 64 for one in prints)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x9b31mb", "two\nlines", "\u202eright", "nul\0"])
@pytest.mark.parametrize("field", ["version", "addresses", "model"])
def test_what_could_command_a_terminal_is_refused(text: str, field: str) -> None:
    changes: dict[str, Any] = {
        "version": {"version": text},
        "addresses": {"addresses": (text,)},
        "model": {"holding": named(text)},
    }[field]
    assert not acceptable(record(**changes))
    assert open_record(signed(**changes)) is None


def test_names_in_any_script_are_taken() -> None:
    assert acceptable(record(holding=named("моя модель 模型")))


def named(model: str) -> Holding:
    return holding(0, 5, model=msgspec.structs.replace(MODEL, id=model))
