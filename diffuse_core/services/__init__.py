"""Services: asyncio over ports only."""
