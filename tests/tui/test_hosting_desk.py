"""The hosting desk and the local node, over commands that are scripts of a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING

import pytest
from tui_fakes import FakeAttachment

from diffuse_core import node_end, settings, wiring
from diffuse_core.errors import Unreachable
from diffuse_core.settings import NetworkOptions
from diffuse_tui import hosting_desk
from diffuse_tui.detached import Detached
from diffuse_tui.hosting_desk import HostingDesk
from diffuse_tui.local_node import HOST_LOG, HOST_PID, LOG_TAIL, LocalNode
from diffuse_tui.presenter.hosting import (
    Choice,
    Complete,
    End,
    Keep,
    Look,
    PlanFor,
    Start,
    Status,
)

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_tui.presenter.hosting import News

PLAN = {
    "model": "m",
    "slice": [0, 3],
    "reason": "r",
    "bytes": {},
    "changes": {"text": "t"},
}
WAITS = "import sys, time; time.sleep(60)"


class Commands:
    """What `diffuse` does, and a node that runs as long as its process does."""

    def __init__(self, state: Path, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.scripts = {"plan": "", "host": WAITS, "node": "import sys; sys.stdin.read()"}
        self.local = LocalNode(state, NetworkOptions("n", mdns=False), ("b:1",), may_start=True)
        self.runs = False
        patch.setattr(wiring, "own_command", self._command)
        patch.setattr(wiring, "attach", self._attach)
        patch.setattr(settings, "running_node", self._running)

    def _command(self, *arguments: str) -> list[str]:
        self.asked.append(arguments)
        self.runs = self.runs or arguments[0] == "node"
        return [sys.executable, "-c", self.scripts[arguments[0]]]

    async def _attach(self, *_: object) -> FakeAttachment:
        return FakeAttachment()

    def _running(self, _state: Path) -> settings.NodeFile | None:
        return settings.NodeFile("a:1", "00", 1) if self.runs else None


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path / "state", monkeypatch)


async def told(desk: HostingDesk, order: object) -> list[News]:
    news: list[News] = []
    async with asyncio.timeout(15):
        await desk.do(order, news.append)
    return news


async def test_a_plan_is_asked_of_the_command_with_this_node_and_its_network(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    desk = HostingDesk(commands.local)
    monkeypatch.setenv("HOME", str(tmp_path))
    commands.scripts["plan"] = f"print({json.dumps(json.dumps(PLAN))})"
    choice = Choice("~/m.gguf", max_layers="3")
    (planned,) = await told(desk, PlanFor(choice))
    assert planned.choice == choice
    assert planned.fit.slice == (0, 3)
    asked = commands.asked[0]
    assert asked[:3] == ("plan", f"--model={tmp_path}/m.gguf", "--max-layers=3")
    assert {"--json", "--state-dir", "--no-mdns", "--bootstrap", "b:1"} < set(asked)
    commands.scripts["plan"] = "import sys; sys.exit('x\\ndiffuse: too small\\n')"
    (planned,) = await told(desk, PlanFor(choice))
    assert (planned.fit, planned.failure) == (None, "too small")
    commands.scripts["plan"] = WAITS
    monkeypatch.setattr(hosting_desk, "PLAN_S", 0.05)
    (planned,) = await told(desk, PlanFor(choice))
    assert "no plan after" in planned.failure


async def test_a_plan_that_nobody_waits_for_is_ended(commands: Commands, tmp_path: Path) -> None:
    import psutil

    begun = tmp_path / "begun"
    commands.scripts["plan"] = (
        f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    plan = asyncio.create_task(HostingDesk(commands.local).do(PlanFor(Choice("m")), print))
    async with asyncio.timeout(10):
        while not begun.exists() or not begun.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    plan.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await plan
    assert not psutil.pid_exists(int(begun.read_text()))


async def test_a_host_that_ends_before_it_listens_tells_its_last_words(
    commands: Commands, tmp_path: Path
) -> None:
    desk = HostingDesk(commands.local)
    commands.scripts["host"] = "import sys; sys.exit('diffuse: no memory for a layer')"
    news = await told(desk, Start(Choice("m", threads="2")))
    assert [n.doing for n in news] == ["starting a host of m", ""]
    assert news[-1].failure == "no memory for a layer"
    assert (tmp_path / "state" / HOST_LOG).stat().st_mode & 0o777 == 0o600
    assert "--threads=2" in commands.asked[-1]
    # Which keeps it from growing for as long as the host runs.
    assert commands.asked[-1][-2:] == ("--log-file", str(tmp_path / "state" / HOST_LOG))
    assert "--exit-with-parent" not in commands.asked[-1]
    # Then a node without a slice is started, and what was said stays.
    await commands.local.attach()
    assert commands.asked[-1][0] == "node"
    assert desk.status.failure == "no memory for a layer"
    assert (desk.status.mine, desk.status.other) == (False, None)
    await commands.local.stop()


async def test_nothing_attaches_while_one_node_makes_room_for_another(
    commands: Commands,
) -> None:
    desk, news = HostingDesk(commands.local), []
    start = asyncio.create_task(desk.do(Start(Choice("m")), news.append))
    async with asyncio.timeout(15):
        while len(commands.asked) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        attach = asyncio.create_task(commands.local.attach())
        # One start at a time.
        await desk.do(Start(Choice("other")), news.append)
        assert not attach.done()
        commands.runs = True
        await attach
        assert [asked[0] for asked in commands.asked] == ["host"]
        assert desk.status == Status(mine=True)
        await desk.do(Keep(keep=False), news.append)
        await commands.local.stop()
        commands.runs = False
        await start
    assert "signal 15" in desk.status.failure
    assert commands.local.hosting is None


async def test_where_it_is_refused_nothing_is_started_or_ended(commands: Commands) -> None:
    desk = HostingDesk(commands.local, "a demo", ends=False)
    for order in (Look(), Start(Choice("m")), End(None)):
        assert await told(desk, order) == [Status(refusal="a demo", ends=False)]
    assert commands.asked == []
    news = await told(HostingDesk(commands.local), End(None))
    assert "nothing to end" in news[-1].failure
    (completed,) = await told(desk, Complete("/nowhere/at/all"))
    assert completed.paths == ()


async def test_a_host_that_was_kept_is_known_again_and_ends_with_the_app_when_that_is_said(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    class Kept(FakeAttachment):
        async def stop_node(self, patience: float | None) -> None:
            asked.append(patience)
            commands.runs = False

    async def attach(*_: object) -> FakeAttachment:
        return Kept()

    async def gone(_: object) -> None:
        assert not commands.runs

    monkeypatch.setattr(wiring, "attach", attach)
    monkeypatch.setattr(node_end, "gone", gone)
    commands.runs = True
    desk, mark = HostingDesk(commands.local), tmp_path / "state" / HOST_PID
    mark.parent.mkdir()
    for found in (b"", b"\xff\xfe", b"12", b"1" * 5000):
        mark.write_bytes(found)
        assert (desk.status.earlier, desk.status.ours) == (False, False)
    await told(desk, Keep(keep=False))
    await commands.local.stop()
    assert asked == [], "a node that is not known to be the app's goes on"
    mark.write_bytes(b"1")
    assert (desk.status.mine, desk.status.earlier, desk.status.ours) == (False, True, True)
    assert not HostingDesk(commands.local, "a demo").status.ours
    await told(desk, Keep(keep=True))
    await commands.local.stop()
    assert asked == []
    await told(desk, Keep(keep=False))
    await commands.local.stop()
    assert asked == [None]


def test_of_a_long_log_only_the_end_is_read(commands: Commands, tmp_path: Path) -> None:
    log = tmp_path / "state" / HOST_LOG
    log.parent.mkdir()
    assert "ended without a word" in commands.local.host_words()
    log.write_bytes(b"\xe2\x82\xac" * 100_000 + b"\nthe end\n")
    assert commands.local.host_words().endswith("\nthe end")
    assert len(commands.local.host_words()) == LOG_TAIL


async def test_a_detached_process_is_ended_by_force_when_it_does_not_listen(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True);" + WAITS
    process = Detached([sys.executable, "-c", deaf], log, {})
    async with asyncio.timeout(15):
        while log.read_text() != "deaf\n":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await process.end(0.05)
    assert process.status == -9
    await process.end(0.05)


async def test_a_host_that_is_ended_from_here_is_told_from_one_that_goes_by_itself(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = HostingDesk(commands.local)
    assert not desk.status.ending

    async def refuse(_: float | None) -> None:
        raise Unreachable("nobody there")

    monkeypatch.setattr(commands.local, "end", refuse)
    news = await told(desk, End(None))
    assert [each.ending for each in news] == [True, False]

    async def end(_: float | None) -> None:
        pass

    monkeypatch.setattr(commands.local, "end", end)
    await told(desk, End(None))
    assert desk.status.ending
