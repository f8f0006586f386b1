"""Channels over WebSocket: one TCP port per node, bounded frames, no compression."""

from diffuse_core.adapters.websocket_transport.transport import WebSocketTransport

__all__ = ["WebSocketTransport"]
