"""What a model weighs, counted from the headers of its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from diffuse_core.adapters.models.kv_width import kv_numbers
from diffuse_core.adapters.models.model_config import sizes_of
from diffuse_core.adapters.models.model_layout import HEAD, layout_of
from diffuse_core.domain.shapes import (
    ITEM_BYTES,
    Contract,
    ModelShape,
    end_bits,
    kinds_of_layers,
    matrix_bits,
    matrix_bytes,
    table_bytes,
)
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from diffuse_core.adapters.models.parameter import Parameter

LEAN = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Architectures that are computed with integer weights."""


def check_contract(config: Mapping[str, object], contract: Contract) -> None:
    """Refuse what is not computed.

    Raises:
        UsageError: integer weights of another architecture than LEAN.
    """
    if contract in ("int8", "int4") and not is_lean(config):
        raise UsageError(
            f"{contract} is computed for {', '.join(LEAN)} only, and this model is of the "
            f"architecture {config['model_type']}; use --dtype bf16 (or fp32)"
        )


def is_lean(config: Mapping[str, object]) -> bool:
    """Whether the lean engine computes it, which lays a tied head out apart to be multiplied."""
    return config["model_type"] in LEAN and config.get("hidden_act", "silu") == "silu"


def check_complete(
    config: Mapping[str, object], parameters: Mapping[str, Parameter], where: str
) -> None:
    """Check that embedding, final norm, head and every layer are there, and no layer more.

    Raises:
        ModelUnusable: naming what is missing or too much.
    """
    layout, sizes = layout_of(config), sizes_of(config)
    needed = list(layout.needed)
    if not config.get("tie_word_embeddings"):
        needed.append(HEAD)
    for name in needed:
        if name not in parameters:
            raise ModelUnusable(
                f"{where} has no tensor {name}; it is no complete text-generating model: "
                "download it again"
            )
    found = {layer for name in parameters if (layer := layout.layer_of(name)) is not None}
    if found != set(range(sizes.layers)):
        odd = min(found.symmetric_difference(range(sizes.layers)))
        told = "has no tensors of" if odd < sizes.layers else "has tensors of"
        raise ModelUnusable(
            f"{where} {told} layer {odd}, but its configuration says {sizes.layers} layers; "
            "the model is incomplete or damaged: download it again"
        )
    wanted = (sizes.vocab, config.get("word_embed_proj_dim", sizes.hidden))
    shape = parameters[layout.embedding_name].shape
    if shape != wanted:
        raise ModelUnusable(
            f"{where}: {layout.embedding_name} has shape {shape}, its configuration says {wanted}"
        )


def count_shape(
    config: Mapping[str, object], parameters: Mapping[str, Parameter], contract: Contract
) -> ModelShape:
    """Sizes under `contract`; the final norm counts with the head.

    Raises:
        UsageError: the contract is not computed for the architecture.
    """
    check_contract(config, contract)
    layout, sizes = layout_of(config), sizes_of(config)
    per_layer, first, last = [0] * sizes.layers, 0, 0
    for parameter in parameters.values():
        layer = layout.layer_of(parameter.name)
        if layer is not None:
            per_layer[layer] += _inside(parameter, contract)
        elif parameter.name in layout.first_names:
            first += _outside(parameter, contract, table_bytes)
        else:
            last += _outside(parameter, contract, matrix_bytes)
    tied = HEAD not in parameters
    if tied:
        last += _outside(parameters[layout.embedding_name], contract, matrix_bytes)
    kinds, kind_of = kinds_of_layers(per_layer)
    return ModelShape(
        layers=sizes.layers,
        hidden=sizes.hidden,
        vocab=sizes.vocab,
        context=sizes.context,
        layer_bytes=max(per_layer),
        embedding_bytes=first,
        head_bytes=last,
        kv_bytes=kv_numbers(config) * ITEM_BYTES[contract],
        tied=tied and not is_lean(config),
        kinds=kinds,
        kind_of=kind_of,
    )


def _inside(parameter: Parameter, contract: Contract) -> int:
    """Bytes that a parameter of a layer takes."""
    if len(parameter.shape) != 2:
        return parameter.numbers * ITEM_BYTES[contract]
    rows, columns = parameter.shape
    return matrix_bytes(matrix_bits(contract, parameter.bits, columns), rows, columns)


def _outside(
    parameter: Parameter, contract: Contract, count: Callable[[Literal[8, 16, 32], int, int], int]
) -> int:
    """Bytes that a parameter of the embedding or the head takes."""
    if len(parameter.shape) != 2:
        return parameter.numbers * ITEM_BYTES[contract]
    rows, columns = parameter.shape
    return count(end_bits(contract, columns), rows, columns)
