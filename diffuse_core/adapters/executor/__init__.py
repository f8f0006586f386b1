"""Diffuse executor."""
