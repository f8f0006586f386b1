"""Fixtures that more than one package of tests uses."""

from __future__ import annotations

import gc
import logging
import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FOR_TESTS = ("DIFFUSE_CACHE_DIR", "DIFFUSE_SIM_", "DIFFUSE_UPDATE_SNAPSHOTS")
# Nothing that tests run speaks on the real LAN, nor is it changed by the user's own settings.
for name in [name for name in os.environ if name.startswith("DIFFUSE_")]:
    if not name.startswith(FOR_TESTS):
        del os.environ[name]
os.environ["DIFFUSE_MDNS"] = "0"
os.environ["DIFFUSE_CONFIG"] = os.devnull


def pytest_collection_finish() -> None:
    """What is there now stays: else collections walk through half a million objects, always.

    With less to walk through they would come more often, for no use.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Commands that run in the process of the tests say for all of it what is logged.

    And what Ctrl+C does once they are over.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    loggers = [logging.getLogger(name) for name in (None, "diffuse_core")]
    levels = [logger.level for logger in loggers]
    yield
    if signal.getsignal(signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    root = loggers[0]
    for handler in list(root.handlers):
        if type(handler.formatter).__module__.startswith("diffuse_core"):
            root.removeHandler(handler)


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """The real demo model, from the user's cache; fetched into it when it is not there."""
    from diffuse_core.adapters.models.demo import fetch_demo
    from diffuse_core.settings import cache_dir

    return fetch_demo(cache_dir() / "models", lambda _fraction: None)
