"""Diffuse tokenizer."""
