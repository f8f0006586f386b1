"""Errors as the OpenAI API has them: `{"error": {"message", "type", "param", "code"}}`.

The shape is that of the API reference ("Error codes") and of the official client's `APIError`,
which reads these four and picks its exception by the status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import (
    DiffuseError,
    ModelIncomplete,
    ModelUnknown,
    ModelUnusable,
    PromptTooLong,
    Refused,
    StagesLost,
    ToolsUnknown,
    Unreachable,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from diffuse_core.domain.view import Failed

MAX_MESSAGE = 2000
MAX_PATH = 200
PATHS = "GET /v1/models, GET /v1/models/ID, POST /v1/chat/completions and POST /v1/completions"
INCOMPLETE_RETRY_S = 10
UNREACHABLE_RETRY_S = 5
LOST_RETRY_S = 1
BUSY_RETRY_S = 2
ENDING_RETRY_S = 5

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    400: "invalid_value",
    401: "invalid_api_key",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    411: "length_required",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    431: "headers_too_large",
    500: "internal_error",
    503: "unavailable",
}


class ApiError(Exception):
    """A refusal or failure that a client of the API is told.

    `message` names the cause and the next step, `param` the field that is at fault, `code` a word
    for programs (by default one that goes with the status). `retry_after_s` tells when asking
    again makes sense; None where it makes none.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = clean(message)[:MAX_MESSAGE]
        self.code = code or _CODES.get(status, "error")
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> str:
        """The `type` of the error object."""
        if self.status in _KINDS:
            return _KINDS[self.status]
        return "invalid_request_error" if self.status < 500 else "server_error"

    def told(self) -> dict[str, Any]:
        """The error object, as plain data; also what is sent in the middle of a stream."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def rendered(error: ApiError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of the response that tells an error, for any ASGI server."""
    body = msgspec.json.encode(error.told())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return error.status, headers, body


async def http_error(request: Request, error: Exception) -> Response:
    """An exception handler for Starlette's HTTPException: no such path, or method of it."""
    from starlette.responses import Response

    status = getattr(error, "status_code", 500)
    path = request.url.path[:MAX_PATH]
    told = ApiError(status, f"{request.method[:16]} {path} is not served here; there are {PATHS}")
    status, headers, body = rendered(told)
    response = Response(body, status)
    response.raw_headers = [*headers, *_allow(getattr(error, "headers", None))]
    return response


def _allow(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    allowed = (headers or {}).get("Allow")
    return [] if allowed is None else [(b"allow", allowed.encode())]


def unsupported(name: str, why: str, param: str | None = None) -> ApiError:
    """The refusal of something that the API has and this server does not; `why` has no stop."""
    message = f"{name!r} is not supported here: {why}"
    return ApiError(400, message, code="unsupported_parameter", param=param or name)


def invalid(param: str, message: str) -> ApiError:
    """The refusal of a field's value."""
    return ApiError(400, f"{param}: {message}", param=param)


def defect() -> ApiError:
    """What a client is told of an error of this program: no details, which are in the log."""
    return ApiError(
        500, "this server met a defect of its own; its log has the place, ask again or report it"
    )


def ending() -> ApiError:
    """What is told in a stream that the end of the server cuts."""
    return ApiError(
        503,
        "this server is ending, and the answer is not whole; ask again when it runs",
        retry_after_s=ENDING_RETRY_S,
    )


def told_to_clients(error: DiffuseError) -> ApiError:
    """What a failure of the network, or of the request on it, is in the API's terms."""
    message = str(error)
    match error:
        case PromptTooLong():
            return too_long(error, "messages")
        case ToolsUnknown():
            return ApiError(400, message, param="tools")
        case UsageError():
            return ApiError(400, message)
        case ModelUnusable():
            return ApiError(503, message, code="model_unusable")
        case ModelUnknown():
            return ApiError(404, message, code="model_not_found", param="model")
        case ModelIncomplete():
            return _later(message, "model_incomplete", INCOMPLETE_RETRY_S)
        case Unreachable():
            return _later(message, "unreachable", UNREACHABLE_RETRY_S)
        case Refused():
            return _refused(error)
        case StagesLost():
            return _later(message, "stages_lost", LOST_RETRY_S)
        case _:
            return ApiError(500, message)


def too_long(error: DiffuseError, param: str | None) -> ApiError:
    """The refusal of a prompt that does not fit the model; `param` is where it was given."""
    return ApiError(400, str(error), code="context_length_exceeded", param=param)


def told_of_failed(event: Failed) -> ApiError:
    """What a generation's Failed is, as a node tells its owner of it."""
    for kind in (UsageError, ModelUnknown, ModelIncomplete, Unreachable, Refused, StagesLost):
        if kind.exit_code == event.exit_code:
            return told_to_clients(kind(event.message))
    return ApiError(500, event.message)


def _refused(error: Refused) -> ApiError:
    if error.reason == "context":
        return too_long(error, None)
    if error.reason in ("busy", "memory"):
        return ApiError(429, str(error), retry_after_s=BUSY_RETRY_S)
    return _later(str(error), "refused", BUSY_RETRY_S)


def _later(message: str, code: str, seconds: int) -> ApiError:
    return ApiError(503, message, code=code, retry_after_s=seconds)
