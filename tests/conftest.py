"""Fixtures that more than one package of tests uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """The real demo model, from the user's cache; fetched into it when it is not there."""
    from diffuse_core.adapters.models.demo import fetch_demo
    from diffuse_core.settings import cache_dir

    return fetch_demo(cache_dir() / "models", lambda _fraction: None)
