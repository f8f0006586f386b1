"""The lean engine: the llama-like family without a module call in its loop."""
