"""Colours, by meaning."""

from __future__ import annotations

from textual.theme import Theme

THEME = Theme(
    name="diffuse",
    primary="#5ccfe6",
    secondary="#73d0ff",
    accent="#d4bfff",
    success="#87d96c",
    warning="#ffcc66",
    error="#ff6666",
    foreground="#d5dae3",
    background="#12161f",
    surface="#171c27",
    panel="#1f2633",
    dark=True,
    variables={
        "dim": "#76839a",
        "label": "#8c98ad",
        "border": "#5ccfe6",
        "border-blurred": "#2c3648",
        "block-cursor-background": "#2f4a5c",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-text-style": "none",
        "footer-key-foreground": "#5ccfe6",
        "footer-background": "#1a2130",
    },
)
