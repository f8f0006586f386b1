"""Records: what a node says about itself, signed, and how such bytes are read back."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from diffuse_core.domain.coordinates import Coordinate
from diffuse_core.domain.identity import Identity, NodeId, Signature, WireNodeId, verify
from diffuse_core.domain.roles import HoldState, Role
from diffuse_core.domain.shapes import Bytes, Contract, ModelShape
from diffuse_core.domain.slices import Slice

MAX_RECORD_BYTES = 2048
MAX_ADDRESSES = 4
COUNTER_BITS = 20
MAX_SEQUENCE = 2**63 - 1
MAX_CLOCK_MS = MAX_SEQUENCE >> COUNTER_BITS
"""The latest Unix time in milliseconds that a sequence can hold: in the year 2248."""

Address = Annotated[str, msgspec.Meta(min_length=3, max_length=192)]
"""HOST:PORT, or a relayed address (see domain.relayed_address)."""
ModelId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Digest32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]


class ModelRef(msgspec.Struct, frozen=True):
    """A model as the network knows it: a name, its content, and how it computes.

    `fingerprint` covers the weights' content *and* the contract; nodes whose fingerprints differ
    never share a Route. `bundle` is the SHA-256 of the tokenizer bundle.
    """

    id: ModelId
    fingerprint: Digest32
    contract: Contract
    shape: ModelShape
    bundle: Digest32


class Holding(msgspec.Struct, frozen=True):
    """The Slice a Host holds or is about to hold."""

    model: ModelRef
    slice: Slice
    state: HoldState


class Load(msgspec.Struct, frozen=True):
    """How busy a Host is. Bytes are of KV; rates are over the last seconds.

    `step_ms` is what a pass of few rows takes, when last there was one; `wait_ms` is how long such
    rows waited for their pass.
    """

    sessions: Count = 0
    kv_used: Bytes = 0
    kv_budget: Bytes = 0
    tokens_per_s: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] = 0.0
    step_ms: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] = 0.0
    wait_ms: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] = 0.0


class Record(msgspec.Struct, frozen=True):
    """A node's signed advertisement. `sequence` is boot milliseconds ‖ counter: later wins.

    `left` is the node's farewell: signed by itself, so it can be believed from anyone.
    `coordinate` is where it is on the network, None while it does not know.
    """

    node: WireNodeId
    sequence: Sequence
    role: Role
    version: Annotated[str, msgspec.Meta(max_length=32)]
    addresses: Annotated[tuple[Address, ...], msgspec.Meta(max_length=MAX_ADDRESSES)] = ()
    capacity: Bytes = 0
    holding: Holding | None = None
    load: Load = Load()
    left: bool = False
    coordinate: Coordinate | None = None


class SignedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as bytes, and its signature over exactly those bytes."""

    payload: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]
    signature: Signature


def fingerprint(content: str, contract: Contract) -> str:
    """What names a model on the network: its weights' content and how it computes."""
    return hashlib.sha256(f"{content}/{contract}".encode()).hexdigest()


def first_sequence(boot_ms: int) -> int:
    """The sequence of the first record of a process that booted at `boot_ms` (Unix time)."""
    return boot_ms << COUNTER_BITS


def seal(record: Record, identity: Identity) -> SignedRecord:
    """Sign `record` as its own node."""
    payload = msgspec.msgpack.encode(record)
    return SignedRecord(payload, identity.sign("record", payload))


_decoder = msgspec.msgpack.Decoder(Record)


def acceptable(record: Record) -> bool:
    """Whether others would take `record`, once signed: it is within all bounds."""
    payload = msgspec.msgpack.encode(record)
    return len(payload) <= MAX_RECORD_BYTES and _read(payload) is not None


def open_record(signed: SignedRecord) -> Record | None:
    """The record inside, or None when it is malformed, inconsistent or not signed by its node."""
    record = _read(signed.payload)
    if record is None or not verify(record.node, "record", signed.payload, signed.signature):
        return None
    return record


def _read(payload: bytes) -> Record | None:
    try:
        record = _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # The last comes of fields that are not known here, nested a thousand deep.
        return None
    holding = record.holding
    if holding is not None and holding.slice.end > holding.model.shape.layers:
        return None
    # Such text is printed on many terminals, which must not take it for commands.
    name = "" if holding is None else holding.model.id
    if not "".join((record.version, *record.addresses, name)).isprintable():
        return None
    return record


def record_node(record: Record) -> NodeId:
    """The node id with its type, which msgspec's wire type does not carry."""
    return NodeId(record.node)
