"""A process that may open no more files says so in a line, not in a flood of tracebacks."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING

from diffuse_core.adapters.few_files import bear_few_files

if TYPE_CHECKING:
    import pytest


class Full(socket.socket):
    """A listening socket of a process that has all files open that it may."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.tried = asyncio.Event()

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        if self.tries > 1:
            self.tried.set()
        raise OSError(errno.EMFILE, "Too many open files")


async def test_connections_that_wait_are_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    bear_few_files(loop)
    listening = Full()
    listening.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(lambda *_: None, sock=listening)
    with caplog.at_level(logging.WARNING), socket.create_connection(listening.getsockname()):
        async with asyncio.timeout(5):
            await listening.tried.wait()
    server.close()
    await server.wait_closed()
    (record,) = caplog.records
    assert "all files that this process may open are in use" in record.getMessage()
    assert record.exc_info is None


async def test_a_port_that_closes_while_they_wait_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_s = 0.02
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", soon_s)
    loop = asyncio.get_running_loop()
    bear_few_files(loop)
    listening = Full()
    listening.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(lambda *_: None, sock=listening)
    with socket.create_connection(listening.getsockname()):
        async with asyncio.timeout(5):
            await listening.tried.wait()
        server.close()
        after = asyncio.Event()
        loop.call_later(2 * soon_s, after.set)
        await after.wait()
    assert len(caplog.records) == 1


async def test_other_errors_of_the_loop_are_told_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    bear_few_files(loop)
    with caplog.at_level(logging.WARNING):
        loop.call_exception_handler({"message": "odd", "exception": OSError(errno.EMFILE, "x")})
    (record,) = caplog.records
    assert record.name == "asyncio"
    assert record.exc_info is not None
