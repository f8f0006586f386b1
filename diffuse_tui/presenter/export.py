"""A conversation as a file: what is in it, and what it is called."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffuse_tui.presenter.dialogue import Dialogue

MAX_SLUG = 60
MARKDOWN, JSON = ".md", ".json"


def slug(title: str) -> str:
    """A title as the name of a file: letters and digits of any script, joined by hyphens."""
    plain = unicodedata.normalize("NFKC", title).casefold()
    words = re.findall(r"[^\W_]+", plain)
    name = "-".join(words)
    while len(name.encode()) > MAX_SLUG * 2 or len(name) > MAX_SLUG:
        name = name[:-1]
    name = name.strip("-") or "conversation"
    # Names that Windows keeps for devices.
    return f"{name}-chat" if re.fullmatch(r"con|prn|aux|nul|com\d|lpt\d", name) else name


def file_text(dialogue: Dialogue, ending: str) -> str:
    """What a file of that ending holds: JSON for `.json`, else Markdown."""
    if ending.casefold() == JSON:
        from diffuse_tui.presenter.export_json import to_json

        return to_json(dialogue)
    from diffuse_tui.presenter.export_markdown import to_markdown

    return to_markdown(dialogue)
