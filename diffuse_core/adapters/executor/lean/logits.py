"""Logits finer than the type they are computed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffuse_core.adapters.executor.lean.matrices import Stack

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.lean.matrices import Matrix

NEAR = 2.0
"""Logits this far below a row's greatest are worth telling apart: e^-2 of its probability."""


def exact_logits(head: Matrix, x: torch.Tensor) -> torch.Tensor:
    """fp32 logits (n, vocab) of normalised rows x (n, width).

    A logit near 25 comes out of a bf16 kernel in steps of 0.125, in which the two likeliest
    words are often the same ("Paris" was lost that way). The kernel adds before it rounds, so
    that a second run gives the difference to the rounded logits, in much finer steps. It is made
    for the parts of the head with a candidate for the row's greatest; a row's logits do not
    depend on the other rows.
    """
    parts = head.parts if isinstance(head, Stack) else (head,)
    rough = [part(x) for part in parts]
    if x.dtype == torch.float32:
        return rough[0] if len(rough) == 1 else torch.cat(rough, 1)
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
