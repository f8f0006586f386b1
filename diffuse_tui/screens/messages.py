"""What the app tells its main screen. Workers post these and touch no widget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from diffuse_core.domain.view import Event, NetworkView, Telemetry
    from diffuse_tui.presenter.banner import Link


class ViewArrived(Message, bubble=False):
    """A newer picture of the network; one that was not drawn yet may be skipped."""

    def __init__(self, view: NetworkView, telemetry: Telemetry | None) -> None:
        super().__init__()
        self.view = view
        self.telemetry = telemetry

    def can_replace(self, message: Message) -> bool:
        """Only the newest picture matters."""
        return isinstance(message, ViewArrived)


class EventsArrived(Message, bubble=False):
    """Events since the last update; none may be skipped."""

    def __init__(self, events: tuple[Event, ...]) -> None:
        super().__init__()
        self.events = events


class LinkChanged(Message, bubble=False):
    """The tie to the node changed."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
