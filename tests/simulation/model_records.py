"""Records of hosts as they are in earnest: with a model, its shape, a slice and a load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.domain.records import Holding, Load, ModelRef
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    import random

LAYERS = 32
SPAN = 8
_SHAPE = ModelShape(
    layers=LAYERS,
    hidden=4096,
    vocab=128_256,
    context=131_072,
    layer_bytes=436_224_000,
    embedding_bytes=1_050_673_152,
    head_bytes=1_050_681_344,
    kv_bytes=4096,
    tied=False,
)
MODEL = ModelRef(
    id="meta-llama/Llama-3.1-8B-Instruct",
    fingerprint="a" * 64,
    contract="bf16",
    shape=_SHAPE,
    bundle="b" * 64,
)


def slice_of(number: int) -> Slice:
    """Which layers host `number` holds: the hosts share the model evenly."""
    start = number * SPAN % LAYERS
    return Slice(start, start + SPAN)


def host_record(number: int, load: Load | None = None) -> dict[str, Any]:
    """The fields of a host's record."""
    return {
        "version": "0.4.1",
        "addresses": (
            f"198.51.{number // 250}.{number % 250}:9440",
            f"10.0.0.{number % 250}:9440",
        ),
        "capacity": 16 * 2**30,
        "holding": Holding(MODEL, slice_of(number), "ready"),
        "load": load or Load(kv_budget=2**31),
    }


def random_load(rng: random.Random) -> Load:
    """How busy a host may be."""
    sessions = rng.randrange(9)
    return Load(
        sessions=sessions,
        kv_used=sessions * rng.randrange(2**20, 2**26),
        kv_budget=2**31,
        tokens_per_s=rng.uniform(0, 40) if sessions else 0.0,
        step_ms=rng.uniform(10, 40),
    )
