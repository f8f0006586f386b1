"""What all messages of the wire are made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

Nonce = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
NAME_BYTES = 10
"""Of what Stages call a Session among each other (domain.session.common_name). It travels with
every token; to find another Session's is 2^80 hashes of work."""
WireSessionId = Annotated[bytes, msgspec.Meta(min_length=NAME_BYTES, max_length=16)]
Text = Annotated[str, msgspec.Meta(max_length=512)]


class Message(msgspec.Struct, frozen=True, tag_field="t"):
    """Root of all messages."""
