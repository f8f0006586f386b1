"""What a generation was asked to do: sampling parameters, stop conditions, how it ended."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
MAX_TOKENS = 2**20

FinishReason = Literal["stop", "length", "cancelled"]


class SamplingParams(msgspec.Struct, frozen=True):
    """How the next token is chosen from the logits.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch those filters off. `seed` keys the
    counter-based generator: the same seed and position give the same draw on every machine.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 0.0
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**24)] = 0
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class DecodingParams(msgspec.Struct, frozen=True):
    """When the last Stage ends a generation. `stop_ids` empty means: only length ends it."""

    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
    sampling: SamplingParams = SamplingParams()
    stop_ids: Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=64)] = ()
