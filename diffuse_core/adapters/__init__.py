"""Adapters: the ports' implementations. They do not import each other."""
