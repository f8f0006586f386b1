"""Records, models and messages that several domain tests build on."""

from __future__ import annotations

from typing import Any

from diffuse_core.domain.identity import Identity, NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.records import Holding, ModelRef, Record, SignedRecord, seal
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

SMOL = ModelShape(
    layers=30,
    hidden=576,
    vocab=49152,
    context=8192,
    layer_bytes=7_080_192,
    embedding_bytes=56_623_104,
    head_bytes=56_624_256,
    kv_bytes=768,
    tied=True,
)
MODEL = ModelRef(id="smol", fingerprint="a" * 64, contract="bf16", shape=SMOL, bundle="b" * 64)


def identity(number: int) -> Identity:
    return Identity(number.to_bytes(32, "big"))


def node(number: int) -> NodeId:
    return identity(number).node


def ordered(number: int) -> NodeId:
    """Not a real key, but ids in a known order."""
    return NodeId(bytes([number]) * 32)


def holding(start: int, end: int, state: str = "ready", model: ModelRef = MODEL) -> Holding:
    return Holding(model, Slice(start, end), state)


def record(number: int = 1, sequence: int = 1, **changes: Any) -> Record:
    fields: dict[str, Any] = {"role": "host", "version": "0.1"} | changes
    return Record(node=node(number), sequence=sequence, **fields)


def signed(number: int = 1, sequence: int = 1, **changes: Any) -> SignedRecord:
    return seal(record(number, sequence, **changes), identity(number))


def member(number: int, start: int, end: int, **changes: Any) -> Member:
    state = changes.pop("state", "ready")
    model = changes.pop("model", MODEL)
    fields: dict[str, Any] = {"liveness": "alive", "heard_at": 0.0} | changes
    return Member(record=record(number, holding=holding(start, end, state, model)), **fields)
