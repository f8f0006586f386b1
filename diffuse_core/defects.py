"""What may be logged of a defect: where it lies, and never its text, which may hold a prompt."""

from __future__ import annotations

import traceback

MAX_FRAMES = 12
"""The innermost are told."""


def place_of_defect(error: BaseException) -> str:
    """The kind of an error, and where it came from: files, lines and functions."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    places = " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {places}"
