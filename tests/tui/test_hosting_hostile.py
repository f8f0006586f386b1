"""Commands for hosting that answer nonsense, or leave something behind."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from diffuse_core import wiring
from diffuse_core.settings import NetworkOptions
from diffuse_tui import hosting_desk
from diffuse_tui.hosting_desk import HostingDesk
from diffuse_tui.local_node import LocalNode
from diffuse_tui.presenter.hosting import Choice, PlanFor, Planned

if TYPE_CHECKING:
    from pathlib import Path


async def planned(script: str, state: Path, patch: pytest.MonkeyPatch) -> Planned:
    patch.setattr(wiring, "own_command", lambda *_: [sys.executable, "-c", script])
    local = LocalNode(state, NetworkOptions("n", mdns=False), (), may_start=False)
    told: list[object] = []
    await HostingDesk(local).do(PlanFor(Choice("m")), told.append)
    (plan,) = told
    assert isinstance(plan, Planned)
    return plan


@pytest.mark.parametrize(
    "script",
    ["import os; os.write(1, b'\\xff' * 300000)", "print('[1, 2')", "print('[' * 100000)", ""],
)
async def test_what_is_no_plan_is_told_as_a_failure(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await planned(script, tmp_path, monkeypatch)
    assert plan.fit is None
    assert "no plan" in plan.failure


async def test_what_a_plan_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting_desk, "PLAN_S", 0.5)
    noted = tmp_path / "pid"
    script = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '60']);"
        f"open({str(noted)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    plan = await planned(script, tmp_path, monkeypatch)
    assert "no plan after" in plan.failure
    left = int(noted.read_text())
    limit = time.monotonic() + 5
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit
