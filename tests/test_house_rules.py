"""The house rules that no linter knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("diffuse_*/**/*.py"), *ROOT.glob("tests/**/*.py")])
HEAVY = {"torch", "transformers", "numpy"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    """A module of 400 lines or more holds two ideas."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


@pytest.mark.parametrize(
    ("module", "barred"),
    [
        ("diffuse_core", HEAVY | {"textual", "websockets"}),
        ("diffuse_core.domain.gossip", HEAVY | {"textual", "websockets"}),
        ("diffuse_core.services.node", HEAVY | {"textual", "websockets"}),
        ("diffuse_core.services.host", HEAVY | {"textual", "websockets"}),
        ("diffuse_core.cli", HEAVY | {"textual", "websockets"}),
        ("diffuse_core.wiring", HEAVY | {"textual"}),
        ("diffuse_tui", HEAVY | {"textual", "websockets"}),
        ("diffuse_tui.app", HEAVY | {"websockets"}),
        ("diffuse_tui.launch", HEAVY | {"websockets"}),
    ],
)
def test_import_is_light(module: str, barred: set[str]) -> None:
    """A linter sees the static graph; only a fresh interpreter proves what loads."""
    code = f"import sys, {module}; print(*({barred!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert not done.stdout.strip()


@pytest.mark.parametrize("command", [["diffuse_core"], ["diffuse_tui"]])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv = [{command[0]!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_module({command[0]!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        f"    assert not end.code and not ({HEAVY | {'textual'}!r} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
