"""An HTTP server for ASGI apps that face strangers: bounded, guarded, quiet about content."""

from diffuse_core.adapters.http_server.bearer import BearerGuard
from diffuse_core.adapters.http_server.browsers import (
    HostGuard,
    OriginGuard,
    parse_name,
    parse_origin,
)
from diffuse_core.adapters.http_server.json_bodies import JsonGuard
from diffuse_core.adapters.http_server.limits import HttpLimits
from diffuse_core.adapters.http_server.refusal import Refusal, Render, plain
from diffuse_core.adapters.http_server.request_log import RequestLog
from diffuse_core.adapters.http_server.server import HttpServer, serve_http

__all__ = [
    "BearerGuard",
    "HostGuard",
    "HttpLimits",
    "HttpServer",
    "JsonGuard",
    "OriginGuard",
    "Refusal",
    "Render",
    "RequestLog",
    "parse_name",
    "parse_origin",
    "plain",
    "serve_http",
]
