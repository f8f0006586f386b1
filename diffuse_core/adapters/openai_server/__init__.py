"""The OpenAI API's routes over whatever gives answers; who may ask is for others to settle."""

from diffuse_core.adapters.openai_server.errors import ApiError, http_error, rendered
from diffuse_core.adapters.openai_server.limits import ApiLimits
from diffuse_core.adapters.openai_server.routes import openai_routes

__all__ = ["ApiError", "ApiLimits", "http_error", "openai_routes", "rendered"]
