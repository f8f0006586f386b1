"""Two models of the field by their sizes in bf16, whose ends weigh several layers."""

from __future__ import annotations

from diffuse_core.domain.records import ModelRef
from diffuse_core.domain.shapes import ModelShape

SMALL = ModelRef(
    id="meta-llama/Llama-3.1-8B-Instruct",
    fingerprint="a" * 64,
    contract="bf16",
    shape=ModelShape(
        layers=32,
        hidden=4096,
        vocab=128_256,
        context=131_072,
        layer_bytes=436_224_000,
        embedding_bytes=1_050_673_152,
        head_bytes=1_050_681_344,
        kv_bytes=4096,
    ),
    bundle="b" * 64,
)
"""32 layers; with the KV that is reserved, an end weighs 2.3 layers."""

LARGE = ModelRef(
    id="meta-llama/Llama-3.1-70B-Instruct",
    fingerprint="c" * 64,
    contract="bf16",
    shape=ModelShape(
        layers=80,
        hidden=8192,
        vocab=128_256,
        context=131_072,
        layer_bytes=1_711_308_800,
        embedding_bytes=2_101_346_304,
        head_bytes=2_101_362_688,
        kv_bytes=4096,
    ),
    bundle="d" * 64,
)
"""80 layers; an end weighs 1.2 layers."""
