"""The node on this machine: which one is started, and which one is nobody's to replace."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from tui_driver import NARROW, ready, screen_text, shown, until
from tui_fakes import FakeAttachment, Node, served

from diffuse_core import settings, wiring
from diffuse_core.errors import ChannelClosed
from diffuse_tui.app import DiffuseApp
from diffuse_tui.local_node import LOG, LocalNode
from diffuse_tui.presenter.banner import NodeEnded
from diffuse_tui.presenter.fit import last_words

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """What runs with a state directory, as the test has it."""

    def __init__(self, state: Path, patch: pytest.MonkeyPatch) -> None:
        self.runs = False
        self.started = 0
        self.local = LocalNode(state, settings.PUBLIC, (), may_start=True)
        patch.setattr(settings, "running_node", lambda _state: self.runs or None)
        patch.setattr(wiring, "attach", self._attach)
        patch.setattr(wiring, "own_command", self._command)

    async def _attach(self, *_: object) -> FakeAttachment:
        return FakeAttachment()

    def _command(self, *_: str) -> list[str]:
        self.started += 1
        self.runs = True
        return [sys.executable, "-c", "import sys; sys.stdin.read()"]


async def test_what_commands_say_to_the_app_is_text_however_logs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIFFUSE_LOG_FORMAT", "json")
    monkeypatch.setenv("DIFFUSE_STATE_DIR", str(tmp_path))
    local = LocalNode(tmp_path / "state", settings.PUBLIC, (), may_start=True)
    command = wiring.own_command("plan", "--model", "./no such model", "--json")
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=local.environment(),
    )
    _, said = await process.communicate()
    assert last_words(said.decode()).startswith("no model ")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "state", monkeypatch)


async def test_a_node_of_somebody_else_is_not_replaced_unless_asked(machine: Machine) -> None:
    machine.runs = True
    await machine.local.attach()
    machine.runs = False
    for _ in range(2):
        with pytest.raises(NodeEnded, match="s: start one here"):
            await machine.local.attach()
    assert machine.started == 0
    # It came back, and went again.
    machine.runs = True
    await machine.local.attach()
    machine.runs = False
    with pytest.raises(NodeEnded):
        await machine.local.attach()
    machine.local.replace()
    await machine.local.attach()
    assert machine.started == 1
    await machine.local.stop()


async def test_a_node_of_the_app_is_started_again_and_its_log_is_private(
    machine: Machine, tmp_path: Path
) -> None:
    log = tmp_path / "state" / LOG
    log.parent.mkdir()
    log.touch(0o644)
    for started in (1, 2):
        await machine.local.attach()
        assert machine.started == started
        assert log.stat().st_mode & 0o777 == 0o600
        await machine.local.stop()
        machine.runs = False


async def test_the_app_says_that_its_node_ended_and_starts_one_when_asked() -> None:
    there = Node()
    replaced = asyncio.Event()
    app = DiffuseApp(there.attach, retry=(0.01, 60.0), replace=replaced.set)
    async with app.run_test(size=NARROW) as pilot:
        fake = await ready(pilot, there)
        await pilot.press("escape", "s")
        assert not replaced.is_set()
        there.errors += [NodeEnded("its node has ended; waiting for it · Esc, s: start one here")]
        fake.feed.put_nowait(ChannelClosed("the node went away"))
        await shown(pilot, "its node has ended; waiting for it · Esc, s: start one here")
        assert "disconnected" in screen_text(pilot).split("\n")[0]
        assert "attached" not in screen_text(pilot).split("\n")[0]
        await pilot.press("s")
        await until(pilot, lambda: len(there.attachments) == 2)
        assert replaced.is_set()
        there.attachments[1].show(served())
        await shown(pilot, "● attached")
