"""Makes the simulation importable from anywhere, and gives tests a seed that can be replayed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SEED_VARIABLE = "DIFFUSE_SIM_SEED"


@pytest.fixture
def seed() -> int:
    """1, or what DIFFUSE_SIM_SEED says; pytest shows what is printed here of tests that fail."""
    chosen = int(os.environ.get(SEED_VARIABLE, "1"))
    print(f"replay with {SEED_VARIABLE}={chosen}")  # noqa: T201
    return chosen
