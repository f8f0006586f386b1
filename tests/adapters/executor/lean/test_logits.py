"""Words that are near each other are told apart, in every contract and whoever is in the pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch

from diffuse_core.adapters.executor.lean import forms as forms_module
from diffuse_core.adapters.executor.lean.forms import Forms, coded
from diffuse_core.adapters.executor.lean.logits import NEAR, exact_logits
from tests.adapters.executor.lean.models import CONTRACTS, hidden_type
from tests.adapters.executor.lean.sources import GROUP, TensorSource

if TYPE_CHECKING:
    from diffuse_core.adapters.executor.lean.matrices import Matrix
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import WeightSource

VOCAB, WIDTH = 1000, 64


def numbers() -> torch.Tensor:
    own = torch.Generator().manual_seed(1)
    weight = torch.randn((VOCAB, WIDTH), generator=own)
    # Two words for one state, in every type nearer than a step of bf16.
    weight[7] = weight[900]
    weight[7, :4] += 2.0**-7 * weight[900, :4].abs().amax()
    return weight


def held(contract: Contract) -> torch.Tensor:
    """The head's numbers as they should be held, in float64."""
    weight = numbers()
    if contract in ("fp32", "bf16"):
        return weight.to(hidden_type(contract)).double()
    codes, scale = coded(weight)
    groups = codes.view(VOCAB, -1, GROUP).double() * scale.double().unsqueeze(2)
    return groups.flatten(1)


@pytest.fixture(params=["packed", "plain"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As this CPU multiplies, and as older ones and GPUs do, which have nothing to pack."""
    if request.param == "plain":
        monkeypatch.setattr(forms_module, "can_pack", lambda _dtype, _device: False)


def head_of(contract: Contract, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> Matrix:
    monkeypatch.setattr(forms_module, "BLOCK_BYTES", block_bytes)
    source = cast("WeightSource", TensorSource({"w": numbers()}))
    return Forms(source, contract, "cpu").head("w")


def states(contract: Contract) -> torch.Tensor:
    own = torch.Generator().manual_seed(2)
    x = torch.randn((6, WIDTH), generator=own)
    x[2] = numbers()[900] * 0.5
    return x.to(hidden_type(contract))


@pytest.mark.parametrize("block_bytes", [8 * 2**20, 1])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_logits_near_the_greatest_are_much_finer_than_bf16(
    contract: Contract, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = head_of(contract, monkeypatch, block_bytes)
    x, weight = states(contract), held(contract)
    wanted = x.double() @ weight.t()
    found = exact_logits(head, x)
    assert (found.dtype, found.shape) == (torch.float32, wanted.shape)
    # All within a rounding of their type, those near the greatest within one of 15 bits.
    rounding = 2.0**-23 if contract == "fp32" else 2.0**-8
    sums = (WIDTH + 2) * 2.0**-24 * (x.double().abs() @ weight.abs().t())
    error = (found.double() - wanted).abs()
    assert bool((error <= 1.01 * rounding * wanted.abs() + sums).all())
    near = wanted >= wanted.amax(1, keepdim=True) - NEAR * 0.9
    assert int(near.sum()) > len(x)
    assert bool((error <= 2.0**-15 * wanted.abs() + sums)[near].all())
    top = wanted[2].topk(2)
    assert set(top.indices.tolist()) == {7, 900}
    assert float(top.values[0] - top.values[1]) < 2.0**-8 * float(top.values[0])
    assert found[2].topk(2).indices.tolist() == top.indices.tolist()


def enough(company: torch.Tensor, head: Matrix) -> torch.Tensor:
    """So many rows that one beside them is what it is among many."""
    return company.repeat(-(-(head.alone - 1) // len(company)), 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_rows_logits_do_not_depend_on_the_other_rows(
    contract: Contract, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    head = head_of(contract, monkeypatch, 1)
    x = states(contract)
    # Rows for which nearly all words are candidates, and such as have none.
    flat, bad = torch.zeros_like(x[:1]), torch.full_like(x[:1], float("nan"))
    whole = exact_logits(head, torch.cat((x, x)))
    for company in (flat, bad, x[2:3], torch.cat((flat, bad, x, x))):
        for at in range(len(x)):
            found = exact_logits(head, torch.cat((x[at : at + 1], enough(company, head))))
            assert torch.equal(found[0], whole[at])


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_row_that_is_not_finite_gives_logits_that_are_not(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = head_of(contract, monkeypatch, 1)
    bad = torch.full((2, WIDTH), float("nan"), dtype=hidden_type(contract))
    assert not bool(torch.isfinite(exact_logits(head, bad)).any())
