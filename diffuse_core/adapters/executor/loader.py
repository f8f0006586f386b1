"""Loading a Slice: from a source's headers to an executor."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.allocator import returning_memory
from diffuse_core.adapters.executor.blueprints import Blueprints
from diffuse_core.adapters.executor.lean.loader import layer_of, lean_slice, slice_names
from diffuse_core.adapters.executor.quiet_import import import_quietly
from diffuse_core.adapters.executor.reading import check_shape
from diffuse_core.adapters.executor.stage_executor import StageExecutor
from diffuse_core.adapters.executor.step_checks import Bounds
from diffuse_core.adapters.executor.strangers import refuse_strangers
from diffuse_core.domain.shapes import HIDDEN_TYPE
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.adapters.executor.lean.blueprint import Blueprint
    from diffuse_core.adapters.executor.lean.engine import LeanEngine
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import Progress, WeightSource

NOTHING_KEPT = Blueprints()


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
    blueprints: Blueprints = NOTHING_KEPT,
) -> StageExecutor:
    """Read the tensors of `part` and nothing else.

    At its peak this takes the Slice and a few MiB. `progress` is told the fraction done, from
    time to time; what it raises cancels the load. `lean` allows the fast path where it fits;
    with a kept blueprint that is taken without loading the library.

    Raises:
        UsageError: the model has no such layers, or its architecture is not computed in this
            contract or not on this device.
        ModelUnusable: an architecture that is not proven, or a tensor that is missing, has
            another shape, or is unknown to the architecture.
    """
    engine, bounds = _load(source, part, contract, progress, device, blueprints if lean else None)
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
    return _load(source, part, contract, progress, device, NOTHING_KEPT if lean else None)[0]


def _load(
    source: WeightSource,
    part: Slice,
    contract: Contract,
    progress: Progress,
    device: str,
    blueprints: Blueprints | None,
) -> tuple[Engine, Bounds]:
    with returning_memory():
        found = _blueprint(source, blueprints) if blueprints else None
        if found is not None:
            known = found.family
            bounds = _bounds(known.layers, known.hidden, known.vocab, found.context, contract)
            _check_part(part, known.layers)
            return _lean(source, found, part, contract, progress, device), bounds
        import_quietly("diffuse_core.adapters.executor.general_loading")
        from diffuse_core.adapters.executor.general_loading import general_slice
        from diffuse_core.adapters.executor.skeleton import Plan

        plan = Plan(source.config())
        bounds = _bounds(plan.layers, plan.hidden, plan.vocab, plan.context, contract)
        _check_part(part, plan.layers)
        return general_slice(source, plan, part, contract, progress, device), bounds


def _blueprint(source: WeightSource, blueprints: Blueprints) -> Blueprint | None:
    """What was kept, or made and kept now."""
    config = source.config()
    found = blueprints.find(config)
    if found is None:
        import_quietly("diffuse_core.adapters.executor.lean_choice")
        from diffuse_core.adapters.executor.lean_choice import blueprint_of

        found = blueprint_of(config)
        if found is not None:
            blueprints.keep(config, found)
    return found


def _lean(
    source: WeightSource,
    found: Blueprint,
    part: Slice,
    contract: Contract,
    progress: Progress,
    device: str,
) -> LeanEngine:
    if device != "cpu" and contract in ("int8", "int4"):
        raise UsageError(f"{contract} is computed on the CPU only; use bf16 on {device}")
    refuse_strangers(source, found.shapes, found.idle, layer_of, part)
    for name in slice_names(source, found.family, part, found.shapes):
        check_shape(source, name, found.shapes[name])
    rotary = found.rotary(device)
    return lean_slice(source, found.family, part, contract, rotary, progress, device)


def _bounds(layers: int, hidden: int, vocab: int, context: int, contract: Contract) -> Bounds:
    return Bounds(layers, hidden, vocab, context, HIDDEN_TYPE[contract])


def _check_part(part: Slice, layers: int) -> None:
    if part.end > layers:
        raise UsageError(f"the model has {layers} layers, there is no slice {part}")
