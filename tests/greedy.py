"""What draws the likeliest token, and what it drew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.sampling import Sampler

if TYPE_CHECKING:
    from diffuse_core.model_ports import StageResult

GREEDY = Sampler(DecodingParams(1), 1)


def last_token(result: StageResult) -> int | None:
    """The last token that a step drew, if any."""
    return result.drawn[-1].token if result.drawn else None
