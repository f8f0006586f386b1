"""Diffuse: one language model, run in slices on many ordinary machines."""

__version__ = "0.1.0"
