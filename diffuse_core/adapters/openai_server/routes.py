"""The paths of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from diffuse_core.adapters.openai_server.desk import Desk
from diffuse_core.adapters.openai_server.endpoint import Endpoint

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.limits import ApiLimits
    from diffuse_core.ports import Answers, Clock

_GET, _POST = ("GET",), ("POST",)


def openai_routes(answers: Answers, limits: ApiLimits, clock: Clock) -> list[Route]:
    """The routes under /v1, for any Starlette application.

    Their endpoints send all errors themselves. Who may ask, from where, and how large and how
    slow a body may be is for the application and its server to settle before.
    """
    desk = Desk(answers, limits, clock)
    paths = (
        ("/v1/models", desk.models, _GET),
        ("/v1/models/{id:path}", desk.model, _GET),
        ("/v1/chat/completions", desk.chat, _POST),
        ("/v1/completions", desk.text, _POST),
    )
    return [Route(path, Endpoint(handler), methods=methods) for path, handler, methods in paths]
