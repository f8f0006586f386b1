"""What is kept of a defect: where it happened, and nothing of what was asked or answered."""

from __future__ import annotations

import os
import platform
import traceback
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from textual.worker import WorkerFailed

from diffuse_core import __version__
from diffuse_tui.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_KEPT = 5
"""Reports in the state directory; the oldest goes first."""

MAX_CHAIN = 10
"""Exceptions that led to one another."""

_HEAD = "A defect ended the app. This tells where; prompts and answers are not in it."


class Defect(NamedTuple):
    """A report as it was kept, and the line that tells of it."""

    file: Path | None
    line: str


def keep(error: BaseException, directory: Path | None, name: str) -> Defect:
    """Write a report, for nobody else's eyes.

    Args:
        error: What was not expected.
        directory: Where reports are kept; None to keep none.
        name: Tells this report from others, and sorts by time.
    """
    error = error.error if isinstance(error, WorkerFailed) else error
    where = f"{type(error).__name__} {_place(error)}".strip()
    file = None if directory is None else directory / f"crash-{name}.txt"
    if file is not None:
        try:
            with os.fdopen(open_private(file), "w", encoding="utf-8") as out:
                out.writelines(_told(error))
            _thin_out(file.parent)
        except OSError:
            file = None
    details = f"details: {file}" if file else "no details could be kept"
    return Defect(file, f"diffuse-tui: a defect in the app ended it ({where}); {details}")


def _told(error: BaseException) -> Iterator[str]:
    yield f"{_HEAD}\n\ndiffuse-tui {__version__}, textual {version('textual')}, "
    yield f"Python {platform.python_version()}, {platform.platform()}\n"
    for cause in islice(_chain(error), MAX_CHAIN):
        # Not what the exception says: that may quote what was typed.
        yield f"\n{type(cause).__module__}.{type(cause).__qualname__}\n"
        yield from traceback.StackSummary.extract(traceback.walk_tb(cause.__traceback__)).format()


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 - a name, no file


def _thin_out(directory: Path) -> None:
    reports = sorted(directory.glob("crash-*.txt"))
    for old in reports[:-MAX_KEPT]:
        with suppress(OSError):
            old.unlink()
