"""Linear layers of the library, where bf16 is slow."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from diffuse_core.adapters.executor import bf16
from diffuse_core.adapters.executor.bf16 import LEAST_ROWS, widen, widened

BF16 = torch.bfloat16


class Scaled(nn.Linear):
    """Does more than a product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def made(form: type[nn.Linear], dtype: torch.dtype, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return form(33, 20, bias=bias).to(dtype).requires_grad_(False)


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "is_slow", lambda *what: what == (BF16, "cpu"))


@pytest.mark.parametrize("bias", [False, True])
def test_many_rows_are_widened_and_few_are_not(bias: bool) -> None:
    layer = made(nn.Linear, BF16, bias=bias)
    x = torch.randn(1, LEAST_ROWS, 33).to(BF16)
    plain = layer(x[:, 1:])
    widen(nn.Sequential(layer))
    assert torch.equal(layer(x[:, 1:]), plain)
    found = layer(x)
    assert found.shape == (1, LEAST_ROWS, 20)
    assert torch.equal(found, widened(x, layer.weight, layer.bias))
    assert torch.allclose(found[:, 1:].double(), plain.double(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize(("form", "dtype"), [(nn.Linear, torch.float32), (Scaled, BF16)])
def test_what_is_in_fp32_or_does_more_stays(form: type[nn.Linear], dtype: torch.dtype) -> None:
    layer = made(form, dtype)
    x = torch.randn(LEAST_ROWS, 33).to(dtype)
    before = layer(x)
    widen(layer)
    assert "forward" not in vars(layer)
    assert torch.equal(layer(x), before)


def test_a_widened_layer_is_freed_at_once() -> None:
    layer = made(nn.Linear, BF16)
    widen(layer)
    gone = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert gone() is None
    finally:
        gc.enable()
