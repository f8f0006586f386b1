"""Lines from a pipe, a file, or a terminal that can do nothing: one question a line."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

import click

from diffuse_core.cli.query import MAX_PROMPT_CHARS
from diffuse_core.errors import UsageError

_PIECE = 65_536
_MAX_LINE = 4 * MAX_PROMPT_CHARS
"""Bytes."""


class Interrupted(Exception):  # noqa: N818
    """Ctrl+C at the prompt; `typed` is whether something stood there, which is gone."""

    def __init__(self, *, typed: bool = False) -> None:
        super().__init__()
        self.typed = typed


class Reader(Protocol):
    """Where questions come from; `keys` where it reads single keys, and not whole lines."""

    keys: bool

    async def read(self, default: str = "") -> str:
        """The next one; `default` is what may be changed and sent.

        Raises:
            EOFError: there are no more.
            UsageError: it is too long.
            Interrupted: Ctrl+C.
        """
        ...

    def interrupt(self, error: Exception) -> None:
        """Have `read` raise this now."""
        ...


class LineReader:
    """Reads lines from a file descriptor.

    Args:
        descriptor: Read from as bytes come; it may be a regular file.
        prompt: Shown on stderr where there is a terminal.
    """

    keys = False

    def __init__(self, descriptor: int, prompt: str = "") -> None:
        self._descriptor = descriptor
        self._prompt = prompt
        self._buffer = bytearray()
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    async def read(self, default: str = "") -> str:
        """The next line; nothing can be changed in it."""
        if self._prompt:
            click.echo(self._prompt, nl=False, err=True)
        too_long = False
        while (end := self._buffer.find(b"\n")) < 0 and not self._over:
            if len(self._buffer) > _MAX_LINE:
                # What is left of it is no question either.
                too_long = True
                self._buffer.clear()
            await self._readable()
            data = os.read(self._descriptor, _PIECE)
            self._over = not data
            self._buffer += data
        if too_long:
            del self._buffer[: end + 1 if end >= 0 else None]
            raise UsageError(f"a line is longer than {_MAX_LINE} bytes; shorten it")
        if end < 0:
            if not self._buffer:
                raise EOFError
            end = len(self._buffer)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.decode("utf-8", "replace").removesuffix("\r")

    def interrupt(self, error: Exception) -> None:
        """Have `read` raise this, if it waits."""
        if self._waiting is not None and not self._waiting.done():
            if self._prompt:
                click.echo(err=True)
            self._waiting.set_exception(error)

    async def _readable(self) -> None:
        """Wait for bytes, or the end of them."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle, waiting)
        except (PermissionError, NotImplementedError):
            return  # A regular file, which never blocks; or Windows.
        try:
            await waiting
        finally:
            loop.remove_reader(self._descriptor)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
