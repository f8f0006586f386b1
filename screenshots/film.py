"""Pictures of a running app: one as SVG and PNG, or many in a row as an animation."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from typing import TYPE_CHECKING

import resvg_py
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from textual.app import App

FONT = "DejaVu Sans Mono"
EVERY_S = 0.4
WIDTH = 900
"""Pixels across an animation; a terminal of 120 columns can still be read."""


def svg_of(app: App[None]) -> str:
    """What `app` shows now."""
    return app.export_screenshot(title="diffuse-tui")


def png_of(svg: str) -> bytes:
    """The picture in pixels."""
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, monospace_family=FONT))


def save_png(app: App[None], path: Path) -> Path:
    """Write what `app` shows now as PNG."""
    png = path.with_suffix(".png")
    png.write_bytes(png_of(svg_of(app)))
    return png


class Film:
    """Takes a picture two or three times a second; draws them when all is over."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._frames: list[tuple[float, str]] = []

    @contextlib.asynccontextmanager
    async def rolling(self) -> AsyncIterator[None]:
        """Film while inside."""
        task = asyncio.create_task(self._roll())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _roll(self) -> None:
        while True:
            self._frames.append((time.monotonic(), svg_of(self._app)))
            await asyncio.sleep(EVERY_S)

    def save(self, path: Path) -> Path:
        """Write the animation, in the time that it took."""
        pictures: list[Image.Image] = []
        times: list[float] = []
        last = ""
        for at, svg in self._frames:
            if svg != last:
                pictures.append(_frame(svg))
                times.append(at)
            last = svg
        ends = [*times[1:], times[-1] + 3.0]
        lasts = [max(20, round(1000 * (end - at))) for at, end in zip(times, ends, strict=True)]
        pictures[0].save(
            path, save_all=True, append_images=pictures[1:], duration=lasts, loop=0, optimize=True
        )
        return path


def _frame(svg: str) -> Image.Image:
    image = Image.open(io.BytesIO(png_of(svg))).convert("RGB")
    height = round(image.height * WIDTH / image.width)
    small = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    return small.quantize(32, dither=Image.Dither.NONE)
