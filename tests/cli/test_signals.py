"""Signals to a service: the first lets it finish, the second does not wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVICE = """
import asyncio, sys
from diffuse_core.cli.common import run_service

async def work(stop):
    print("up", flush=True)
    try:
        await stop.wait()
        print("finishing", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("finished", flush=True)
    finally:
        print("closed", flush=True)

sys.exit(run_service(work))
"""
LONG_S, SHORT_S = 60.0, 0.05


@pytest.fixture
def service() -> Iterator:
    started: list[subprocess.Popen] = []

    def start(finishing_s: float) -> subprocess.Popen:
        command = [sys.executable, "-c", SERVICE, str(finishing_s)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "up\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_after_one_signal_a_service_finishes(service: object, number: int, code: int) -> None:
    process = service(SHORT_S)
    process.send_signal(number)
    assert process.wait(10) == code
    assert process.stdout.read() == "finishing\nfinished\nclosed\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_second_one_ends_it_at_once(service: object, number: int, code: int) -> None:
    process = service(LONG_S)
    process.send_signal(number)
    assert process.stdout.readline() == "finishing\n"
    start = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) == code
    assert time.monotonic() - start < LONG_S / 2
    assert process.stdout.read() == "closed\n"


@pytest.mark.parametrize("program", ["diffuse_core", "diffuse_tui"])
def test_ctrl_c_after_the_last_word_leaves_no_traceback(program: str) -> None:
    ends_slowly = (
        "import atexit, time\n"
        "atexit.register(lambda: (print('ends', flush=True), time.sleep(60)))\n"
        f"from {program}.__main__ import main\n"
        "main(['--version'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", ends_slowly],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().startswith("diffuse")
        assert process.stdout.readline() == "ends\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == -signal.SIGINT
