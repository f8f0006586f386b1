"""What all messages of the wire are made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

Nonce = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
WireSessionId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Text = Annotated[str, msgspec.Meta(max_length=512)]


class Message(msgspec.Struct, frozen=True, tag_field="t"):
    """Root of all messages."""
