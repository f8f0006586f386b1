"""Words for what a node is on the network, and for how far a Host is with its Slice.

Apart from records, so that who only draws the network needs nothing that signs and verifies.
"""

from __future__ import annotations

from typing import Literal

HoldState = Literal["claiming", "loading", "ready", "leaving"]
Role = Literal["host", "client", "sentinel"]
