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

LEAST_ROWS = 16
"""From so many rows on widening pays for codes, too; for plain matrices it does from 3 on."""


@lru_cache(maxsize=16)
def is_slow(dtype: torch.dtype, device: str) -> bool:
    """Whether products of many rows of this type cost several times those in fp32."""
    if dtype != torch.bfloat16 or device != "cpu":
        return False
    return not (torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())
