"""Models by name, as a hub has them, for hosts that leave the choice to the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.errors import ModelUnknown

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from diffuse_core.adapters.models.hub_name import HubName
    from diffuse_core.model_ports import Progress, WeightSource
    from tests.services.cluster import Host

REPO = "org/tiny"


class Hub:
    """Models by name, as a hub has them; counts how often each is asked for.

    The call whose number has a gate waits for it.
    """

    def __init__(self) -> None:
        self.has: dict[str, Path] = {}
        self.asked: list[str] = []

        self.gates: dict[int, threading.Event] = {}

    def open(self, name: HubName, _progress: Progress) -> WeightSource:
        self.asked.append(name.repo)
        if gate := self.gates.get(len(self.asked)):
            assert gate.wait(10)
        if name.repo not in self.has:
            raise ModelUnknown(f"the hub has no model {name.repo}")
        return DirectorySource(self.has[name.repo], name.repo)


def told(host: Host, text: str) -> bool:
    """Whether an event of the host has this text in it."""
    return any(text in event.text for event in host.node.events)
