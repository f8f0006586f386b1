"""Fixtures that more than one package of tests uses."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


# Nothing that tests run speaks on the real LAN, nor is it changed by the user's own settings.
os.environ["DIFFUSE_MDNS"] = "0"
os.environ["DIFFUSE_CONFIG"] = os.devnull
for name in ("DIFFUSE_NETWORK", "DIFFUSE_NETWORK_KEY", "DIFFUSE_STATE_DIR"):
    os.environ.pop(name, None)


def pytest_collection_finish() -> None:
    """What is there now stays: else collections walk through half a million objects, always.

    With less to walk through they would come more often, for no use.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """The real demo model, from the user's cache; fetched into it when it is not there."""
    from diffuse_core.adapters.models.demo import fetch_demo
    from diffuse_core.settings import cache_dir

    return fetch_demo(cache_dir() / "models", lambda _fraction: None)
