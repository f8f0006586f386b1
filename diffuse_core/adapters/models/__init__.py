"""Diffuse models."""
