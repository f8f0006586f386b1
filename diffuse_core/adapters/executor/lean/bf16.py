"""Products of bf16 numbers on CPUs that have no instructions for them.

Nobody has fast kernels for many rows there (x86 without AVX-512, Arm without bf16, which was not
tried): torch adds number by number. Milliseconds on a Zen 3 core, one thread, for a matrix of
(1536, 576) and 1, 16, 64 and 128 rows: 0.25, 4.1, 21 and 28; in fp32, with the matrix widened each
time, 0.5, 1.3, 2.4 and 4.3. One row is as fast as memory, so that decoding needs nothing.

Only the lean engine does so. The library's modules stay as they are, for what is said must be what
the library says; Conv1D, attention and experts as batched products are many times slower there
even for one row.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch.nn import functional

LEAST_ROWS = 16
"""From so many rows on widening pays for codes, too; for plain matrices it does from 3 on."""
NUMBERS = 2**20
"""That are widened at a time: they take 4 MiB."""


@lru_cache(maxsize=16)
def is_slow(dtype: torch.dtype, device: str) -> bool:
    """Whether products of many rows of this type cost several times those in fp32."""
    if dtype != torch.bfloat16 or device != "cpu":
        return False
    return not (torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def widened(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Rows (..., columns) times a weight (rows, columns), added up in fp32: (..., rows)."""
    given = x.to(torch.float32)
    product = x.new_empty((*x.shape[:-1], weight.shape[0]))
    step = max(1, NUMBERS // weight.shape[1])
    for at in range(0, weight.shape[0], step):
        part = slice(at, at + step)
        own = None if bias is None else bias[part].to(torch.float32)
        product[..., part] = functional.linear(given, weight[part].to(torch.float32), own)
    return product
