"""Towns with homes behind routers, for tests that need them; skipped where they cannot be made."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.e2e.namespaces import namespaces_missing
from tests.e2e.routers import Neighbourhood
from tests.e2e.town import NatTown
from tests.services.tiny_model import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.e2e.routers import Refusal

LONG_CONTEXT = 2048


@pytest.fixture(scope="session")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """The tiny model with room for answers of many seconds."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", LONG_CONTEXT)


@pytest.fixture
def town_of(tmp_path: Path, talkative: TinyModel) -> Iterator[Callable[..., NatTown]]:
    """Build a town of machines outside and homes behind routers, at most one for each test."""
    if reason := namespaces_missing():
        pytest.skip(reason)
    with ExitStack() as stack:

        def build(*outside: str, homes: Mapping[str, Refusal]) -> NatTown:
            around = stack.enter_context(Neighbourhood(*outside, homes=homes))
            return stack.enter_context(NatTown(tmp_path, around, talkative))

        yield build
