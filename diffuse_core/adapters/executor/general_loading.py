"""Loading a Slice for the general engine: the library's own modules, any architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.general import GeneralEngine
from diffuse_core.adapters.executor.reading import read_tensors
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.adapters.executor.strangers import left_over, refuse_strangers
from diffuse_core.adapters.executor.tensors import DTYPES
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.skeleton import Plan
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import Progress, WeightSource


def general_slice(
    source: WeightSource,
    plan: Plan,
    part: Slice,
    contract: Contract,
    progress: Progress,
    device: str,
) -> GeneralEngine:
    """Read the tensors of `part` into the library's module of it.

    Raises:
        UsageError: the architecture is not computed in this contract.
        ModelUnusable: see `loader.load_slice`.
    """
    if contract not in ("fp32", "bf16"):
        raise UsageError(
            f"{contract} is not computed for the architecture {plan.kind}; use bf16 (or fp32)"
        )
    prove(source.config())
    dtype = DTYPES[contract]
    module = plan.build(part, dtype)
    names = source.names
    wanted = {
        plan.stored_name(plan.global_name(local, part), names): (
            tuple(tensor.shape),
            tensor.dtype,
        )
        for local, tensor in module.state_dict().items()
    }
    whole = plan.build(Slice(0, plan.layers), torch.float32)
    known = whole.state_dict().keys()
    refuse_strangers(source, known, left_over(whole), plan.layer_of, part)
    weights = read_tensors(source, wanted, progress, device)
    head, embedding = plan.architecture.head_name, plan.architecture.embedding_name
    if part.end == plan.layers and head not in weights:
        weights[head] = weights[embedding]
        if part.start > 0:
            del weights[embedding]
    return GeneralEngine(plan, part, dtype, weights, module, device)
