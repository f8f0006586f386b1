"""Facts about this machine that only a check-up asks for. What they mean is told elsewhere."""
