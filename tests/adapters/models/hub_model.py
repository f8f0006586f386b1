"""A model large enough that its slices show, on the hub of the tests, and ways to look at it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.hub_client import PACE
from diffuse_core.adapters.models.hub_name import HubName, parse_hub_name
from diffuse_core.adapters.models.hub_source import HubSource, open_hub

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.adapters.models.directory_source import DirectorySource

REPO = "org/tiny"
FILE = "model.safetensors"
# Large enough that a layer weighs much more than what any source reads of all tensors.
BIG = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}
QUICK = replace(PACE, waits=(0.0,) * 3, stall=10.0)


def silent(_: float) -> None:
    pass


def open_named(text: str, cache: Path, endpoint: str, **settings: object) -> HubSource:
    """Open a model as a new process does that has the same cache."""
    name = parse_hub_name(text)
    assert isinstance(name, HubName)
    options = {"endpoint": endpoint, "pace": QUICK, "progress": silent, **settings}
    return open_hub(name, cache, **options)


def layer(source: HubSource, number: int) -> list[str]:
    return [name for name in source.names if name.startswith(f"model.layers.{number}.")]


def length(asked: str) -> int:
    first, last = asked.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def data_of(source: DirectorySource, name: str) -> bytes:
    return b"".join(bytes(piece.data) for piece in source.pieces(name))


def weight(source: DirectorySource, names: list[str]) -> int:
    return sum(len(data_of(source, name)) for name in names)
