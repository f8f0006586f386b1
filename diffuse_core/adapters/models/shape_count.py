"""What a model weighs, counted from the headers of its tensors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.model_config import sizes_of, whole
from diffuse_core.domain.shapes import ITEM_BYTES, Contract, ModelShape
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.models.stored_tensor import StoredTensor

EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"
CONTRACTS: tuple[Contract, ...] = ("fp32", "bf16")

_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.")


def check_contract(contract: Contract) -> None:
    """Refuse what cannot be computed yet.

    Raises:
        UsageError: `contract` comes in a later version.
    """
    if contract not in CONTRACTS:
        raise UsageError(f"{contract} comes in a later version; use bf16 (or fp32)")


def check_complete(
    config: Mapping[str, object], tensors: Mapping[str, StoredTensor], where: str
) -> None:
    """Check that embedding, final norm, head and every layer are there, and no layer more.

    Raises:
        ModelUnusable: naming what is missing or too much.
    """
    layers = whole(config, "num_hidden_layers")
    found = set(_layer_numbers(tensors))
    if found != set(range(layers)):
        odd = sorted(found.symmetric_difference(range(layers)))[0]
        told = "has no tensors of" if odd < layers else "has tensors of"
        raise ModelUnusable(
            f"{where} {told} layer {odd}, but its configuration says {layers} layers; "
            "the model is incomplete or damaged: download it again"
        )
    needed = [EMBEDDING, NORM, "model.layers.0.self_attn.k_proj.weight"]
    if not config.get("tie_word_embeddings"):
        needed.append(HEAD)
    for name in needed:
        if name not in tensors:
            raise ModelUnusable(
                f"{where} has no tensor {name}; the model is incomplete: download it again"
            )
    wanted = (whole(config, "vocab_size"), whole(config, "hidden_size"))
    if tensors[EMBEDDING].shape != wanted:
        raise ModelUnusable(
            f"{where}: {EMBEDDING} has shape {tensors[EMBEDDING].shape}, "
            f"its configuration says {wanted}"
        )


def count_shape(
    config: Mapping[str, object], tensors: Mapping[str, StoredTensor], contract: Contract
) -> ModelShape:
    """Sizes under `contract`; the final norm counts with the head.

    Raises:
        UsageError: the contract comes in a later version.
    """
    check_contract(contract)
    item = ITEM_BYTES[contract]
    per_layer = [0] * whole(config, "num_hidden_layers")
    for name, layer in _layers(tensors):
        per_layer[layer] += tensors[name].numbers
    embedding = tensors[EMBEDDING].numbers
    tied = HEAD not in tensors
    head = (embedding if tied else tensors[HEAD].numbers) + tensors[NORM].numbers
    kv_width = tensors["model.layers.0.self_attn.k_proj.weight"].shape[0]
    return ModelShape(
        layers=len(per_layer),
        hidden=whole(config, "hidden_size"),
        vocab=whole(config, "vocab_size"),
        context=sizes_of(config).context,
        layer_bytes=max(per_layer) * item,
        embedding_bytes=embedding * item,
        head_bytes=head * item,
        kv_bytes=2 * kv_width * item,
        tied=tied,
    )


def _layers(tensors: Mapping[str, StoredTensor]) -> list[tuple[str, int]]:
    matches = ((name, _LAYER.match(name)) for name in tensors)
    return [(name, int(match.group(1))) for name, match in matches if match]


def _layer_numbers(tensors: Mapping[str, StoredTensor]) -> list[int]:
    return [layer for _, layer in _layers(tensors)]
