"""Logits finer than the type they are computed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.lean.matrices import Stack

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.lean.matrices import Matrix

NEAR = 2.0
"""Logits this far below a row's greatest are worth telling apart: e^-2 of its probability."""
MOST = 256
"""Candidates a row that are computed again; a row with more is so flat that none stands out."""


def exact_logits(head: Matrix, x: torch.Tensor) -> torch.Tensor:
    """fp32 logits (n, vocab) of normalised rows x (n, width).

    A logit near 25 comes out of a bf16 kernel in steps of 0.125, in which the two likeliest
    words are often the same ("Paris" was lost that way). Those near a row's greatest are computed
    again, more finely. A row's logits do not depend on the other rows.
    """
    if x.dtype == torch.float32:
        return head(x)
    return _picked(head, x) if head.readable else _twice(head, x)


def _picked(head: Matrix, x: torch.Tensor) -> torch.Tensor:
    """Candidates are multiplied in fp32, one by one."""
    logits = head(x).to(torch.float32)
    near = logits >= logits.amax(1, keepdim=True) - NEAR
    near &= near.sum(1, keepdim=True) <= MOST
    rows, ids = torch.nonzero(near, as_tuple=True)
    # Rows that are not finite have no candidates.
    weights = head.rows_of(ids) if len(ids) else None
    if weights is not None:
        logits[rows, ids] = (weights * x.to(torch.float32)[rows]).sum(1)
    return logits


def _twice(head: Matrix, x: torch.Tensor) -> torch.Tensor:
    """A packed kernel adds before it rounds: a second run gives what rounding took.

    It is made for the parts of the head in which a row has a candidate.
    """
    parts = head.parts if isinstance(head, Stack) else (head,)
    rough = [part(x) for part in parts]
    peaks = torch.stack([logits.amax(1) for logits in rough], 1).to(torch.float32)
    near = peaks >= peaks.amax(1, keepdim=True) - NEAR
    wanted = near.any(0).tolist()
    fine = []
    for index, (part, logits) in enumerate(zip(parts, rough, strict=True)):
        numbers = logits.to(torch.float32)
        if wanted[index]:
            rest = part.onto(x, -logits).to(torch.float32)
            numbers += rest * near[:, index : index + 1]
        fine.append(numbers)
    return fine[0] if len(fine) == 1 else torch.cat(fine, 1)
