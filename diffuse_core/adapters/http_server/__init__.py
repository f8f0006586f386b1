"""An HTTP server for ASGI apps that face strangers: bounded, guarded, quiet about content."""

from diffuse_core.adapters.http_server.limits import HttpLimits
from diffuse_core.adapters.http_server.refusal import Refusal, Render, plain
from diffuse_core.adapters.http_server.server import HttpServer, serve_http

__all__ = ["HttpLimits", "HttpServer", "Refusal", "Render", "plain", "serve_http"]
