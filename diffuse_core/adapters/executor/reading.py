"""Reading a source's tensors straight into their final place."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.tensors import view_stored
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from diffuse_core.model_ports import Progress, WeightSource

FETCHED = 0.5
"""The fraction of a load that bringing the files here counts as, where they have to be brought."""


def read_tensors(
    source: WeightSource,
    wanted: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    progress: Progress,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Read the `wanted` tensors, each into memory of its own shape and type.

    At its peak this takes the tensors and one piece more. `progress` is told the fraction of
    numbers as they come; what it raises cancels.

    Raises:
        ModelUnusable: a tensor is missing or has another shape than is wanted.
    """
    for name, (shape, _) in wanted.items():
        check_shape(source, name, shape)
    fetched = fetch(source, wanted.keys(), progress)
    total = sum(prod(shape) for shape, _ in wanted.values())
    done = 0
    weights: dict[str, torch.Tensor] = {}
    for name, (shape, dtype) in wanted.items():
        weights[name] = _read(source, name, shape, dtype, device)
        done += prod(shape)
        progress(fetched + (1 - fetched) * done / total)
    return weights


def fetch(source: WeightSource, names: Collection[str], progress: Progress) -> float:
    """Bring the files of these tensors here; the fraction of the load that this was.

    That is none where all were here already: what is told is what is read then.

    Raises:
        ModelUnknown, ModelUnusable: see `WeightSource.fetch`.
    """
    share = 0.0

    def tell(fraction: float) -> None:
        nonlocal share
        if fraction < 1.0:
            share = FETCHED
        progress(share * fraction)

    source.fetch(names, tell)
    return share


def check_shape(source: WeightSource, name: str, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that is missing or has another shape.

    Raises:
        ModelUnusable: with the name.
    """
    found = source.shape_of(name)
    if found is None:
        raise ModelUnusable(
            f"the model has no tensor {name}; its files are incomplete: download it again"
        )
    if tuple(found) != shape:
        raise ModelUnusable(
            f"tensor {name} has shape {tuple(found)}, the model's settings say {shape}; "
            "its files do not belong together: download it again"
        )


def _read(
    source: WeightSource, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=dtype, device=device)
    rows = tensor.view(1) if tensor.dim() == 0 else tensor
    at = 0
    for piece in source.pieces(name):
        block = view_stored(piece)
        block = block.view(1) if block.dim() == 0 else block
        end = at + block.shape[0]
        if block.shape[1:] != rows.shape[1:] or end > rows.shape[0]:
            raise broken(name)
        rows[at:end].copy_(block)
        at = end
    if at != rows.shape[0]:
        raise broken(name)
    return tensor


def broken(name: str) -> ModelUnusable:
    """What is raised when a file gives other rows than its header said."""
    return ModelUnusable(
        f"tensor {name} was not read in its own shape; its files changed: download it again"
    )
