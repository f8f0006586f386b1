"""systemd is told what it asks for, and never in the way of the service."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from diffuse_core import operating
from diffuse_core.adapters.sd_notify import Notifier, take_notifier
from diffuse_core.operating import reported
from diffuse_core.services.vitals import Health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


class Manager:
    """Listens as systemd does."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self.socket.setblocking(False)
        self.name = name

    def heard(self) -> list[str]:
        """The datagrams that came in."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture(params=["path", pytest.param("abstract", marks=LINUX)])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@{secrets.token_hex(8)}"
    made = Manager(name)
    yield made
    made.socket.close()


def test_what_is_told(manager: Manager) -> None:
    notifier = Notifier(manager.name, 10.0)
    notifier.ready("demo:\n\x1b[2J loading")
    notifier.status("ready")
    notifier.status("ready")
    notifier.alive()
    notifier.extend(1.5)
    notifier.stopping()
    notifier.close()
    notifier.alive()
    told = manager.heard()
    assert told[0].splitlines()[0] == "READY=1"
    assert len(told[0].splitlines()) == 3
    assert f"MAINPID={os.getpid()}" in told[0]
    assert "\x1b" not in told[0]
    assert told[1:] == [
        "STATUS=ready",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=1500000",
        "STOPPING=1",
    ]


def test_what_systemd_gave_is_ours_alone(manager: Manager) -> None:
    place = {
        "NOTIFY_SOCKET": manager.name,
        "WATCHDOG_USEC": "20000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    notifier = take_notifier(place)
    assert place == {"HOME": "/"}
    assert (notifier.wanted, notifier.watchdog_s) == (True, 20.0)


@pytest.mark.parametrize(
    ("given", "wanted", "watchdog"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": ""}, False, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, False, None),
        ({"WATCHDOG_USEC": "5000000"}, False, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "many"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000"}, True, 0.001),
    ],
)
def test_only_what_is_meant_for_us_counts(
    given: dict[str, str], wanted: bool, watchdog: float | None
) -> None:
    notifier = take_notifier(given)
    assert (notifier.wanted, notifier.watchdog_s) == (wanted, watchdog)


def test_a_manager_that_is_gone_or_deaf_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Notifier(str(tmp_path / "gone"))
    gone.ready("x")
    gone.alive()
    gone.close()
    assert len(caplog.records) == 1
    deaf = Manager(str(tmp_path / "deaf"))
    notifier = Notifier(deaf.name)
    for _ in range(5000):
        notifier.alive()
    notifier.close()
    deaf.socket.close()


async def until_told(manager: Manager, wanted: str, seen: list[str]) -> None:
    async with asyncio.timeout(5):
        while not any(wanted in one for one in seen):
            await asyncio.sleep(0.002)
            seen += manager.heard()


async def test_a_service_is_reported_from_its_readiness_to_its_end(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "TICK_S", 0.01)
    health, status, stopping = [Health(True, True)], ["loading"], asyncio.Event()
    notifier = Notifier(manager.name, 0.02)
    seen: list[str] = []
    async with reported(notifier, lambda: status[0], lambda: health[0], stopping):
        await until_told(manager, "WATCHDOG=1", seen)
        assert seen[0].startswith("READY=1\nSTATUS=loading")
        status[0] = "ready"
        await until_told(manager, "STATUS=ready", seen)
        # Whoever does not compute any more is to be started again.
        health[0] = Health(False, False, "the thread is dead")
        status[0] = "dead"
        seen.clear()
        await until_told(manager, "STATUS=dead", seen)
        status[0] = "dead for long"
        await until_told(manager, "STATUS=dead for long", seen)
        after = seen[seen.index("STATUS=dead") :]
        assert not any("WATCHDOG" in one for one in after)
        stopping.set()
        await until_told(manager, "EXTEND_TIMEOUT_USEC=", seen)
        assert any(one == "STOPPING=1" for one in seen)
    assert manager.heard()[-1] == "STOPPING=1"


async def test_a_loop_that_stands_still_says_nothing(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "TICK_S", 0.01)
    notifier = Notifier(manager.name, 0.02)
    code = "import time; time.sleep(0.3)"
    async with reported(notifier, lambda: "x", lambda: Health(True, True), asyncio.Event()):
        await until_told(manager, "WATCHDOG=1", [])
        manager.heard()
        subprocess.run([sys.executable, "-c", code], check=True)  # noqa: ASYNC221 - meant to block
        assert manager.heard() == []


async def test_nobody_who_did_not_ask_is_told() -> None:
    before = asyncio.all_tasks()
    async with reported(Notifier(), lambda: "x", lambda: Health(True, True), asyncio.Event()):
        assert asyncio.all_tasks() == before
