"""What draws the likeliest token."""

from __future__ import annotations

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.sampling import Sampler

GREEDY = Sampler(DecodingParams(1), 1)
