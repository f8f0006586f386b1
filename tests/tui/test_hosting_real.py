"""Hosting from the app with real processes: what is started, what goes on, what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tui_driver import NARROW, screen_text
from tui_terminal import Terminal

from diffuse_core import wiring
from diffuse_core.settings import NetworkOptions, running_node
from diffuse_tui.app import DiffuseApp
from diffuse_tui.hosting_desk import HostingDesk
from diffuse_tui.local_node import HOST_LOG, LocalNode
from tests.e2e.own_cache import own_cache
from tests.services.tiny_model import TinyModel, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from textual.pilot import Pilot

    from diffuse_core.domain.view import Telemetry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NETWORK = NetworkOptions("hosting from the app", mdns=False)
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of which nothing runs any more afterwards, whatever the test did."""
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    place = tmp_path / "state"
    yield place
    if (found := running_node(place)) is not None:
        with contextlib.suppress(psutil.Error):
            psutil.Process(found.pid).kill()


@contextlib.asynccontextmanager
async def app_over(local: LocalNode) -> AsyncIterator[Pilot[None]]:
    app = DiffuseApp(
        local.attach, retry=(0.05,), replace=local.replace, desk=lambda: HostingDesk(local)
    )
    try:
        async with app.run_test(size=NARROW, notifications=True) as pilot:
            yield pilot
    finally:
        await local.stop()


async def sees(pilot: Pilot[None], text: str) -> None:
    await becomes(pilot, lambda: text in screen_text(pilot))


async def becomes(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await pilot.pause(0.02)
    except TimeoutError:
        raise AssertionError(screen_text(pilot)) from None


async def telemetry(state: Path) -> Telemetry:
    attachment = await wiring.attach(state, NETWORK)
    try:
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(attachment.updates()) as told:
            return (await anext(told)).telemetry
    finally:
        await attachment.close()


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def start(pilot: Pilot[None], model: str) -> None:
    """From the main screen's single-letter keys to a host that is seen to get ready."""
    await sees(pilot, "alone")
    await pilot.press("h")
    await sees(pilot, "Start hosting")
    await pilot.press(*model, "enter")
    await sees(pilot, "would take  layers 0:10")
    await pilot.press("enter")
    await sees(pilot, "Getting ready")


async def test_from_a_path_to_an_answer_and_back_to_a_node_without_a_slice(
    state: Path, tiny: TinyModel
) -> None:
    local = LocalNode(state, NETWORK, (), may_start=True)
    async with app_over(local) as pilot:
        await sees(pilot, "alone")
        plain = running_node(state)
        await pilot.press("escape")
        await start(pilot, str(tiny.path))
        await sees(pilot, "● Ready")
        first = running_node(state)
        # Another process, the same node.
        assert (first.node, first.pid == plain.pid) == (plain.node, False)
        assert not lives(plain.pid)
        assert (state / HOST_LOG).stat().st_mode & 0o777 == 0o600
        await pilot.press("escape", "c", *"w1 w2 w3", "enter")
        await sees(pilot, "tokens/s")
        await pilot.press("escape", "h")
        await sees(pilot, "● Ready")
        await pilot.press("d", "d")
        await sees(pilot, "Start hosting")
        await becomes(pilot, lambda: running_node(state) is not None)
        await becomes(pilot, lambda: not lives(first.pid))
        assert (await telemetry(state)).stage == "holds no slice"
        # One that cannot start is told, and the node without a slice is back.
        await pilot.press("slash", *"/nowhere.gguf", "escape", "s")
        await sees(pilot, "✖ failed")
        assert "/nowhere.gguf" in screen_text(pilot)
        await sees(pilot, "alone")
        last = running_node(state).pid
    assert not lives(last)


async def test_a_crash_is_told_and_a_kept_host_is_met_again(state: Path, tiny: TinyModel) -> None:
    local = LocalNode(state, NETWORK, (), may_start=True)
    async with app_over(local) as pilot:
        await sees(pilot, "alone")
        await pilot.press("escape")
        await start(pilot, str(tiny.path))
        os.kill(running_node(state).pid, signal.SIGKILL)
        await sees(pilot, "the host ended by itself (signal 9)")
        await sees(pilot, "Start hosting")
        await pilot.press("escape")
        await start(pilot, str(tiny.path))
        kept = running_node(state).pid
        await pilot.press("escape", "q")
        await sees(pilot, "Keep hosting after quitting?")
        await pilot.press("k")
        await becomes(pilot, lambda: not pilot.app.is_running)
    assert lives(kept)
    again = LocalNode(state, NETWORK, (), may_start=True)
    async with app_over(again) as pilot:
        await sees(pilot, "tiny")
        await pilot.press("escape", "h")
        await sees(pilot, f"this app, before it was left · process {kept}")
        # Ready or not.
        await pilot.press("x", "x")
        await sees(pilot, "Start hosting")
        await becomes(pilot, lambda: not lives(kept))
        await becomes(pilot, lambda: running_node(state) is not None)
        assert again.other() is None


class Typed(Terminal):
    """The app itself; what is waited for comes after what was typed last."""

    def type(self, keys: str) -> None:
        self.output = b""
        self.key(keys.encode())


@pytest.mark.parametrize(
    ("number", "keep", "goes_on"),
    [(signal.SIGKILL, False, True), (signal.SIGTERM, False, False), (signal.SIGTERM, True, True)],
)
def test_the_end_of_the_app_takes_a_host_along_only_where_it_was_to(
    state: Path, tiny: TinyModel, number: signal.Signals, keep: bool, goes_on: bool
) -> None:
    app = Typed("-m", "diffuse_tui", "--state-dir", str(state), *NETWORK.arguments())
    app.shows("alone")
    plain = running_node(state).pid
    app.type("\x1b")
    app.shows("\x1b")
    time.sleep(0.2)  # What follows an escape at once would be a key of its own.
    app.type("h")
    app.shows("Start hosting")
    app.type(f"{tiny.path}\r")
    app.shows("would take")
    app.type("\r")
    app.shows("Getting ready")
    host = running_node(state).pid
    assert host != plain
    assert not lives(plain)
    # Not to go on after quitting: of that, a crash is none.
    if not keep:
        app.type("\t ")
        app.shows("ends")
    # By the time that another key has had its effect, the app knows.
    app.type("?")
    app.shows("Esc closes")
    app.end(number)
    app.close()
    limit = time.monotonic() + PATIENCE_S
    while not goes_on and lives(host) and time.monotonic() < limit:
        time.sleep(0.05)
    assert lives(host) == goes_on
    said = f"the host goes on (process {host})".encode()
    assert (said in app.output) == (keep and goes_on)
