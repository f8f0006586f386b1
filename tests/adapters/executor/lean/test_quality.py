"""The demo model in every contract says what it says in fp32: the gates of its quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.loader import set_threads
from diffuse_core.adapters.models.gguf_source import GgufSource
from tests.adapters.executor.lean.quality import Quality, measured, quality

if TYPE_CHECKING:
    from pathlib import Path

LEAST_POSITIONS = 200
GATES = {
    "bf16": (0.96, 0.002),
    "int8": (0.97, 0.002),
    "int4": (0.95, 0.005),
    "int8 from numbers": (0.97, 0.002),
}
"""Least share of equal top tokens, and largest mean KL, through the decode path.

"From numbers" are codes made here, as for files that have none.
"""


def test_equal_logits_are_of_full_quality_and_others_are_not() -> None:
    own = torch.Generator().manual_seed(1)
    logits = torch.randn((50, 20), generator=own) * 4
    assert quality(logits, logits) == Quality(50, 1.0, 0.0, 0.0)
    # What a softmax takes away is no difference.
    assert quality(logits, logits + 3).divergence < 1e-6
    swapped = logits.clone()
    swapped[0] = logits[0].flip(0)
    found = quality(logits, swapped)
    assert found.agreement == pytest.approx(0.98)
    wanted, other = logits[0].double().softmax(0), swapped[0].double().softmax(0)
    divergence = float((wanted * (wanted / other).log()).sum())
    assert found.worst == pytest.approx(divergence, rel=1e-4)
    assert found.divergence == pytest.approx(divergence / 50, rel=1e-4)


@pytest.fixture(scope="module")
def found(demo_gguf: Path) -> dict[str, Quality]:
    # Two threads wait for each other for minutes where other processes compute.
    set_threads(1)
    source = GgufSource(demo_gguf)
    return measured(source, ("bf16", "int8", "int4"), from_numbers=("int8",))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", GATES)
def test_a_contract_passes_its_gate(found: dict[str, Quality], name: str) -> None:
    agreement, divergence = GATES[name]
    print(f"\n{name}: {found[name]}")  # noqa: T201 - shown with -s
    assert found[name].positions >= LEAST_POSITIONS
    assert found[name].agreement >= agreement
    assert found[name].divergence <= divergence
