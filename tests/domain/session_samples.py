"""A model of six layers, a Route of two Stages through it, and a Session along it."""

from __future__ import annotations

from typing import Any

import msgspec

from diffuse_core.domain.admission import StageTerms
from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.messages import Hop, OpenSession
from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

A, B, C = NodeId(b"a" * 32), NodeId(b"b" * 32), NodeId(b"c" * 32)
SHAPE = ModelShape(
    layers=6, hidden=8, vocab=32, context=64, layer_bytes=100, embedding_bytes=50, head_bytes=50,
    kv_bytes=10,
)  # fmt: skip
MODEL = ModelRef(id="m", fingerprint="0" * 64, contract="fp32", shape=SHAPE, bundle="1" * 64)
ROUTE = (Hop(A, ("127.0.0.1:1",), Slice(0, 4)), Hop(B, ("127.0.0.1:2",), Slice(4, 6)))


def opening(**changes: Any) -> OpenSession:
    plain = OpenSession(
        session=b"s" * 16,
        model="m",
        fingerprint=MODEL.fingerprint,
        route=ROUTE,
        index=0,
        budget=20,
        prompt=5,
        decoding=DecodingParams(max_tokens=10, stop_ids=(2,)),
        credits=2,
    )
    return msgspec.structs.replace(plain, **changes)


def terms(**changes: Any) -> StageTerms:
    values = {
        "own": A, "model": MODEL, "held": Slice(0, 4), "kv_used": 0, "kv_budget": 2**20,
        "sessions": 0,
    }  # fmt: skip
    return StageTerms(**{**values, **changes})
