"""Models and Hosts that the tests of placement build on."""

from __future__ import annotations

from domain_samples import ordered

from diffuse_core.domain.planner import HostSummary
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

TEN = ModelShape(
    layers=10,
    hidden=8,
    vocab=8,
    context=2048,
    layer_bytes=100,
    embedding_bytes=300,
    head_bytes=300,
    kv_bytes=0,
    tied=False,
)
"""Ten layers of 100 bytes; the embedding and the head weigh three layers each."""


def host(
    number: int, start: int, end: int, state: str = "ready", capacity: int = 800
) -> HostSummary:
    return HostSummary(ordered(number), Slice(start, end), state, capacity)
