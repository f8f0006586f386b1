"""What a step must satisfy before anything is computed or allocated for it.

Steps come from other nodes: each figure is checked against the loaded Slice and the Session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.tensors import from_wire, rows_rms
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.engine import KVCache
    from diffuse_core.model_ports import StageStep, TensorType


@dataclass(frozen=True)
class Bounds:
    """What the loaded model allows."""

    layers: int
    hidden: int
    """Numbers of a hidden state."""
    vocab: int
    context: int
    """Positions the model was made for."""
    dtype: TensorType
    """Of hidden states."""


def checked_rows(
    step: StageStep, session: KVCache, bounds: Bounds, rows_alone: int
) -> torch.Tensor:
    """The step's rows: token ids (n), or hidden states (n, width).

    They are at most `rows_alone` where each is to be as if it came alone.

    Raises:
        Refused: the step contradicts the Session, the Slice or the model.
    """
    if step.part != session.part:
        raise Refused(f"the session runs {session.part} here, the step says {step.part}")
    if step.chooser is not None and step.part.end != bounds.layers:
        raise Refused(f"a token was asked of {step.part}, which is not the last stage")
    if not 0 <= step.position <= session.length:
        raise Refused(
            f"the step starts at position {step.position}, the session has {session.length} rows"
        )
    first = step.part.start == 0
    count = _token_count(step, bounds) if first else _hidden_count(step, bounds)
    if step.position + count > session.budget:
        raise Refused(
            f"{count} rows from position {step.position} on pass the session's budget of "
            f"{session.budget}"
        )
    _check_alone(step, count, rows_alone)
    if step.tokens is not None:
        return torch.tensor(step.tokens, dtype=torch.int64)
    assert step.hidden is not None  # noqa: S101 - _hidden_count checked it
    rows = from_wire(step.hidden)
    rms = rows_rms(rows)
    if not all(map(math.isfinite, rms)):
        raise Refused("the hidden states hold NaN or infinity; the stage before is at fault")
    if step.check is not None:
        step.check(step.position, rms)
    return rows


def _check_alone(step: StageStep, count: int, rows_alone: int) -> None:
    if step.alone and count > rows_alone:
        raise Refused(
            f"{count} rows are to be computed as if each came alone, this stage does {rows_alone} "
            "of them at once; send fewer in one step"
        )
    if step.drafts and not (step.alone and len(step.drafts) < count):
        raise Refused(
            f"{len(step.drafts)} guessed tokens need as many rows and one before them, each as "
            f"if it came alone; the step has {count}"
        )


def _token_count(step: StageStep, bounds: Bounds) -> int:
    if step.tokens is None or step.hidden is not None:
        raise Refused("the first stage takes token ids, not hidden states")
    if not step.tokens:
        raise Refused("the step has no tokens")
    if min(step.tokens) < 0 or max(step.tokens) >= bounds.vocab:
        raise Refused(f"a token id is outside the model's vocabulary of {bounds.vocab}")
    return len(step.tokens)


def _hidden_count(step: StageStep, bounds: Bounds) -> int:
    hidden = step.hidden
    if hidden is None or step.tokens is not None:
        raise Refused("a stage after the first takes hidden states, not token ids")
    if hidden.dtype != bounds.dtype:
        raise Refused(
            f"the hidden states are {hidden.dtype}, this stage computes in {bounds.dtype}"
        )
    if len(hidden.shape) != 2 or hidden.shape[0] < 1 or hidden.shape[1] != bounds.hidden:
        raise Refused(
            f"the hidden states have shape {hidden.shape}, "
            f"this model's are (rows, {bounds.hidden})"
        )
    wanted = hidden.shape[0] * hidden.shape[1] * ITEM_BYTES[bounds.dtype]
    if len(hidden.data) != wanted:
        raise Refused(f"the hidden states have {len(hidden.data)} bytes instead of {wanted}")
    return hidden.shape[0]
