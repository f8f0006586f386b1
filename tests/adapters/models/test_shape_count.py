"""What is counted from headers is what is held, for every architecture and contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import pytest
import torch
from transformers import DynamicCache

from diffuse_core.adapters.executor.lean.family import KINDS
from diffuse_core.adapters.executor.skeleton import cache_keyword
from diffuse_core.adapters.models.architectures import ARCHITECTURES
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.adapters.models.model_layout import layout_of
from diffuse_core.adapters.models.shape_count import LEAN
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError
from tests.adapters.models.tiny import persistent, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.domain.shapes import Contract

Q = gguf.GGMLQuantizationType
ITEM: dict[Contract, int] = {"fp32": 4, "bf16": 2}


def held(model: torch.nn.Module, part: Slice, item: int, *, shared: bool) -> int:
    """Bytes of the live module's tensors that `part` needs, by their names.

    `shared` says whether a tied head is the embedding itself where a slice has both.
    """
    layout = layout_of({"model_type": model.config.model_type})
    layers, tied = model.config.num_hidden_layers, model.config.tie_word_embeddings
    total = 0
    for name, tensor in (*model.named_parameters(), *persistent(model)):
        layer = layout.layer_of(name)
        if layer is not None:
            needed = part.start <= layer < part.end
        else:
            needed = (part.start == 0 and name in layout.first_names) or (
                part.end == layers
                and (name in layout.last_names or (tied and name == layout.embedding_name))
            )
        total += needed * tensor.numel() * item
        if name == layout.embedding_name and tied and not shared and len(part) == layers:
            total += tensor.numel() * item
    return total


def cached_numbers(model: torch.nn.Module) -> set[float]:
    """What each layer of the library's own cache holds for one position."""
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.arange(1, 6).unsqueeze(0), **{cache_keyword(model): cache})
    return {(layer.keys.numel() + layer.values.numel()) / 5 for layer in cache.layers}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_weights_and_keys_and_values_of_every_architecture(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    source = DirectorySource(tmp_path)
    cached = cached_numbers(model)
    for contract, item in ITEM.items():
        shape = source.shape(contract)
        for part in (Slice(0, 4), Slice(0, 1), Slice(1, 3), Slice(2, 4), Slice(3, 4)):
            wanted = held(model, part, item, shared=shape.tied)
            assert shape.weight_bytes(part) == pytest.approx(wanted, rel=0.03)
        assert {count * item for count in cached} == {shape.kv_bytes}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
        ("falcon", {"multi_query": False, "alibi": True}),
        ("phi", {"num_key_value_heads": None}),
        ("deepseek_v3", {"q_lora_rank": None}),
    ],
)
def test_keys_and_values_of_variants(
    tmp_path: Path, kind: str, settings: dict[str, object]
) -> None:
    model = tiny_model(kind, **settings)
    model.save_pretrained(tmp_path)
    assert DirectorySource(tmp_path).shape("fp32").kv_bytes == 4 * cached_numbers(model).pop()


def test_layers_that_differ_are_told_apart(tmp_path: Path) -> None:
    tiny_model("deepseek_v3").save_pretrained(tmp_path)
    shape = DirectorySource(tmp_path).shape("bf16")
    assert shape.kind_of == bytes([0, 1, 1, 1])
    assert shape.kinds[1] == shape.layer_bytes > shape.kinds[0]


def test_the_list_of_those_with_integer_weights_is_that_of_the_engine() -> None:
    assert LEAN == KINDS


@pytest.mark.parametrize("contract", ["int8", "int4"])
def test_integer_weights_are_refused_by_name_where_they_are_not_computed(
    tmp_path: Path, contract: Contract
) -> None:
    tiny_model("gemma2").save_pretrained(tmp_path / "a")
    with pytest.raises(UsageError, match=f"{contract} is computed for llama.*gemma2.*bf16"):
        DirectorySource(tmp_path / "a").shape(contract)
    tiny_model("llama", hidden_act="gelu").save_pretrained(tmp_path / "b")
    with pytest.raises(UsageError, match="use --dtype bf16"):
        DirectorySource(tmp_path / "b").shape(contract)


def by_hand(numbers: int, bits: int) -> int:
    return bits // 4 * (numbers // 2 + numbers // 8)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("stored", "contract", "bits"),
    [
        (Q.F32, "int8", 8),
        (Q.F32, "int4", 4),
        (Q.F16, "int4", 4),
        (Q.Q4_1, "int4", 4),
        (Q.Q4_1, "int8", 4),
        (Q.Q8_0, "int4", 8),
    ],
)
def test_integer_weights_are_counted_as_they_are_held(
    make_model: Callable, write_gguf: Callable, stored: Q, contract: str, bits: int, tied: bool
) -> None:
    model = make_model(head_dim=16, tie_word_embeddings=tied)
    shape = GgufSource(write_gguf(model, stored)).shape(contract)
    layer = sum(
        by_hand(tensor.numel(), bits) if tensor.dim() == 2 else 2 * tensor.numel()
        for tensor in model.model.layers[0].parameters()
    )
    embedding, head = 96 * 64 + 2 * 96 * 2, by_hand(96 * 64, 8)
    assert (shape.layer_bytes, shape.embedding_bytes) == (layer, embedding)
    assert shape.head_bytes == head + 2 * 64
    assert shape.kv_bytes == 2 * 2 * 16 * 2
    assert shape.weight_bytes(Slice(0, 3)) == 3 * layer + embedding + head + 128


def test_columns_that_are_no_whole_groups_are_held_in_16_bits(tmp_path: Path) -> None:
    model = tiny_model("llama", intermediate_size=120)
    model.save_pretrained(tmp_path)
    shape = DirectorySource(tmp_path).shape("int4")
    wide = 2 * (120 * 64 * 5 // 8) + (64 * 64 * 2 + 32 * 64 * 2) * 5 // 8
    assert shape.layer_bytes == wide + 2 * 120 * 64 + 2 * 2 * 64


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "contract"),
    [*((kind, "bf16") for kind in ARCHITECTURES), ("qwen3", "int8"), ("qwen3", "int4")],
)
def test_what_is_counted_is_what_the_executor_holds(
    tmp_path: Path, kind: str, contract: Contract
) -> None:
    from diffuse_core.adapters.executor.loader import load_slice

    tiny_model(kind).save_pretrained(tmp_path)
    source = DirectorySource(tmp_path)
    for part in (Slice(0, 4), Slice(0, 1), Slice(1, 3), Slice(3, 4)):
        executor = load_slice(source, part, contract, lambda _: None)
        assert source.shape(contract).weight_bytes(part) == pytest.approx(
            executor.weight_bytes, rel=0.1
        )
