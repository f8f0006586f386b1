"""Colours, by meaning: one theme for each kind of terminal and of eyes.

Every variable that the style sheets and `paint.TONES` use is in every theme. In all but `ansi`,
whose colours are the terminal's own, text is readable on every background it appears on: at least
4.5:1 in `dark` and `light`, 7:1 in `contrast`; a test computes it.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="dark",
    primary="#5ccfe6",
    secondary="#73d0ff",
    accent="#d4bfff",
    success="#87d96c",
    warning="#ffcc66",
    error="#ff7b7b",
    foreground="#d5dae3",
    background="#12161f",
    surface="#171c27",
    panel="#1f2633",
    dark=True,
    variables={
        "boost": "#262e3d",
        "dim": "#98a4b8",
        "label": "#9fabbf",
        "good-tint": "#1a2a2b",
        "warning-tint": "#2d2a22",
        "bad-tint": "#33202a",
        "border": "#5ccfe6",
        "border-blurred": "#3a465c",
        "block-cursor-background": "#26394a",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-text-style": "none",
        "footer-key-foreground": "#5ccfe6",
        "footer-background": "#1a2130",
    },
)

LIGHT = Theme(
    name="light",
    primary="#00566b",
    secondary="#0b5394",
    accent="#5b3fa8",
    success="#1f6120",
    warning="#734c00",
    error="#a8171f",
    foreground="#1d2430",
    background="#fbfbf9",
    surface="#f3f4f2",
    panel="#e9ecef",
    dark=False,
    variables={
        "boost": "#dfe4e9",
        "dim": "#4f5969",
        "label": "#465061",
        "good-tint": "#e2f1e2",
        "warning-tint": "#faf0d7",
        "bad-tint": "#fbe4e4",
        "border": "#00566b",
        "border-blurred": "#aab4c0",
        "block-cursor-background": "#cfe6ee",
        "block-cursor-foreground": "#10151d",
        "block-cursor-text-style": "none",
        "footer-key-foreground": "#00566b",
        "footer-background": "#e9ecef",
    },
)

CONTRAST = Theme(
    name="contrast",
    primary="#6ff2ff",
    secondary="#9fd8ff",
    accent="#ffb3ff",
    success="#7dff7d",
    warning="#ffe14d",
    error="#ffb4b4",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#141414",
    dark=True,
    variables={
        "boost": "#1f1f1f",
        "dim": "#d8d8d8",
        "label": "#e4e4e4",
        "good-tint": "#00220a",
        "warning-tint": "#2b2300",
        "bad-tint": "#330000",
        "border": "#ffe14d",
        "border-blurred": "#a0a0a0",
        "block-cursor-background": "#003a52",
        "block-cursor-foreground": "#ffffff",
        "block-cursor-text-style": "bold",
        "footer-key-foreground": "#6ff2ff",
        "footer-background": "#141414",
    },
)

ANSI = Theme(
    name="ansi",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_blue",
    accent="ansi_magenta",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        # Bright black, the usual grey, is the background itself in some palettes.
        "dim": "ansi_default",
        "label": "ansi_default",
        "good-tint": "ansi_default",
        "warning-tint": "ansi_default",
        "bad-tint": "ansi_default",
        "border": "ansi_cyan",
        "border-blurred": "ansi_default",
        "block-cursor-background": "ansi_blue",
        "block-cursor-foreground": "ansi_bright_white",
        "block-cursor-text-style": "bold",
        "footer-key-foreground": "ansi_cyan",
        "footer-background": "ansi_default",
        "scrollbar-background": "ansi_default",
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
    },
)

THEMES = (DARK, LIGHT, CONTRAST, ANSI)
"""In the order in which the key for the next one goes round."""

NAMES = tuple(theme.name for theme in THEMES)


def theme_after(name: str) -> str:
    """The next theme's name; the first one's after the last or an unknown one."""
    place = NAMES.index(name) if name in NAMES else -1
    return NAMES[(place + 1) % len(NAMES)]
