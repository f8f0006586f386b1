"""The pure domain: no clock, no socket, no asyncio, no torch."""
