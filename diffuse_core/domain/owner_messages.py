"""Messages between a node and its owner: the feed, generations, and orders.

See domain.messages, of which these are a part.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from diffuse_core.domain.view import FeedUpdate, GenerateEvent, GenerateRequest
from diffuse_core.domain.wire import Message, Text

RequestId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class Subscribe(Message, frozen=True, tag="subscribe"):
    """Owner to node: send FeedUpdates until the channel ends."""


class Update(Message, frozen=True, tag="update"):
    """Node to owner: one tick of the feed."""

    feed: FeedUpdate


class Generate(Message, frozen=True, tag="generate"):
    """Owner to node: generate on my behalf."""

    request: RequestId
    ask: GenerateRequest


class Generated(Message, frozen=True, tag="generated"):
    """Node to owner: an event of a generation.

    The last is Failed, Finished, or the last of the Audited that Finished announces.
    """

    request: RequestId
    event: GenerateEvent


class CancelGenerate(Message, frozen=True, tag="cancel"):
    """Owner to node: stop that generation."""

    request: RequestId


class StopNode(Message, frozen=True, tag="stopnode"):
    """Owner to node: shut down in an orderly way.

    `patience` is how many seconds Sessions may take to finish; None leaves it to the Host.
    """

    patience: Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)] | None = None


class NotAllowed(Message, frozen=True, tag="notallowed"):
    """The receiver does not take this from you."""

    detail: Text = ""


OwnerMessage = Subscribe | Update | Generate | Generated | CancelGenerate | StopNode | NotAllowed
