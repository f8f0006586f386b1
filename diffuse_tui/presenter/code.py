"""The code blocks of an answer."""

from __future__ import annotations

from diffuse_tui.presenter.blocks import BlockCutter


def code_blocks(text: str) -> tuple[str, ...]:
    """What is inside each fenced block of `text`, in order; one that is still open counts."""
    cutter = BlockCutter()
    found: list[list[str]] = []
    for kind, part in (*cutter.push(text), *cutter.flush()):
        if kind == "code":
            found.append([])
        elif kind == "line":
            found[-1].append(part)
    return tuple("\n".join(lines) for lines in found)
