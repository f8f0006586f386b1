"""Listening to a generation for so many tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.view import TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def heard(stream: AsyncGenerator, count: int) -> list[int]:
    """The next `count` tokens of a generation, or some more."""
    tokens: list[int] = []
    while len(tokens) < count:
        event = await anext(stream)
        if isinstance(event, TextDelta):
            tokens.extend(event.token_ids)
    return tokens
