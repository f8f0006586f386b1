"""Root mean square normalisation (Zhang and Sennrich, arXiv 1910.07467) in one fast kernel."""

from __future__ import annotations

import torch


class Norm:
    """x / rms(x) * weight over the last axis.

    torch computes its own rms_norm on CPUs in seven steps (10 µs for a row of 576 numbers in
    bf16). Beside its negative a row has the mean 0 and the variance rms(x)², so that
    layer_norm, a single kernel, gives the same in 6 µs with its additions.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self.nbytes = weight.nbytes
        self._width = weight.shape[0]
        self._both = (2 * self._width,)
        self._weight = torch.cat((weight, weight))
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised rows (n, width)."""
        both = torch.cat((x, x.neg()), 1)
        rows = torch.layer_norm(both, self._both, self._weight, None, self._eps)
        return rows.narrow(1, 0, self._width).contiguous()
