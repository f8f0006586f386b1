"""The paths of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import Route

    from diffuse_core.adapters.openai_server.limits import ApiLimits
    from diffuse_core.ports import Answers, Clock


def openai_routes(answers: Answers, limits: ApiLimits, clock: Clock) -> list[Route]:
    """The routes under /v1, for any Starlette app."""
    return []
