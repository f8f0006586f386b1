"""What the chat asks of the app and its screen, and what it is told of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from textual.widget import Widget

    from diffuse_core.domain.view import GenerateEvent, GenerateRequest


class Ask(Message, namespace="chat_pane"):
    """Please run this generation and tell `pane` of it under `number`."""

    def __init__(self, pane: Widget, number: int, request: GenerateRequest) -> None:
        super().__init__()
        self.pane = pane
        self.number = number
        self.request = request


class Stop(Message, namespace="chat_pane"):
    """Please cancel the generation that runs."""


class Wants(Message, namespace="chat_pane"):
    """Please open `what`, or choose the model called `name`.

    One of: history, parameters, waterfall, help, quit, models, model; and `kept model`, which is
    chosen by its exact name, if it is there.
    """

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__()
        self.what = what
        self.name = name


class Export(Message, namespace="chat_pane"):
    """Please write the conversation to a file, as `md` or `json`.

    `path` "" is for one of the app's choice.
    """

    def __init__(self, kind: str, path: str) -> None:
        super().__init__()
        self.kind = kind
        self.path = path


class Arrived(Message, bubble=False, namespace="chat_pane"):
    """Something came of generation `number`."""

    def __init__(self, number: int, event: GenerateEvent) -> None:
        super().__init__()
        self.number = number
        self.event = event


class Ended(Message, bubble=False, namespace="chat_pane"):
    """Generation `number` is over and its iterator is closed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
