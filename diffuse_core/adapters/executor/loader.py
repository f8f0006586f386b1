"""Loading a Slice: from a source's headers to an executor."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.allocator import returning_memory
from diffuse_core.adapters.executor.general import GeneralEngine
from diffuse_core.adapters.executor.lean_choice import lean_engine
from diffuse_core.adapters.executor.reading import read_tensors
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.adapters.executor.skeleton import Plan
from diffuse_core.adapters.executor.stage_executor import StageExecutor
from diffuse_core.adapters.executor.step_checks import Bounds
from diffuse_core.adapters.executor.strangers import refuse_strangers
from diffuse_core.adapters.executor.tensors import DTYPES
from diffuse_core.domain.shapes import HIDDEN_TYPE
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import Progress, WeightSource


def set_threads(count: int) -> None:
    """How many threads one pass may use; call before the first pass."""
    torch.set_num_threads(count)
    # Nothing here runs operations side by side. It can be set only before the first one is.
    if torch.get_num_interop_threads() != 1:
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)


def load_slice(
    source: WeightSource,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: str = "cpu",
    lean: bool = True,
) -> StageExecutor:
    """Read the tensors of `part` and nothing else.

    At its peak this takes the Slice and a few MiB. `progress` is told the fraction done, from
    time to time; what it raises cancels the load. `lean` allows the fast path where it fits.

    Raises:
        UsageError: the model has no such layers, or its architecture is not computed in this
            contract.
        ModelUnusable: an architecture that is not proven, or a tensor that is missing, has
            another shape, or is unknown to the architecture.
    """
    plan = Plan(source.config())
    bounds = Bounds(plan.layers, plan.hidden, plan.vocab, plan.context, HIDDEN_TYPE[contract])
    engine = _engine(source, plan, part, contract, progress, device=device, lean=lean)
    return StageExecutor(engine, part, bounds)


def load_engine(
    source: WeightSource,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: str = "cpu",
    lean: bool = True,
) -> Engine:
    """As `load_slice`, without Sessions and checks: the fastest engine that is proven."""
    plan = Plan(source.config())
    return _engine(source, plan, part, contract, progress, device=device, lean=lean)


def _engine(
    source: WeightSource,
    plan: Plan,
    part: Slice,
    contract: Contract,
    progress: Progress,
    *,
    device: str,
    lean: bool,
) -> Engine:
    if part.end > plan.layers:
        raise UsageError(f"the model has {plan.layers} layers, there is no slice {part}")
    with returning_memory():
        if lean:
            found = lean_engine(source, plan, part, contract, progress, device=device)
            if found is not None:
                return found
        return _general(source, plan, part, contract, progress, device)


def _general(
    source: WeightSource,
    plan: Plan,
    part: Slice,
    contract: Contract,
    progress: Progress,
    device: str,
) -> GeneralEngine:
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
    refuse_strangers(source, plan, whole, part)
    weights = read_tensors(source, wanted, progress, device)
    head, embedding = plan.architecture.head_name, plan.architecture.embedding_name
    if part.end == plan.layers and head not in weights:
        weights[head] = weights[embedding]
        if part.start > 0:
            del weights[embedding]
    return GeneralEngine(plan, part, dtype, weights, module, device)
