"""Running programs of another checkout of this repository, with tests.wire of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTS = Path(__file__).resolve().parents[1]


def environment(checkout: Path) -> dict[str, str]:
    """An environment in which Python takes the packages of a checkout.

    Raises:
        FileNotFoundError: there is none.
    """
    if not (checkout / "diffuse_core" / "__init__.py").is_file():
        raise FileNotFoundError(f"{checkout} holds no checkout: make one with git worktree add")
    return {**os.environ, "PYTHONPATH": str(checkout.resolve()), "PYTHONSAFEPATH": "1"}


def run_tests_module(checkout: Path, *arguments: str) -> int:
    """Run `python -m ARGUMENTS`: `tests.wire` of here, all else of a checkout. The exit code."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "tests").mkdir()
        (Path(place) / "tests" / "wire").symlink_to(TESTS / "wire")
        environ: Mapping[str, str] = environment(checkout)
        environ = {**environ, "PYTHONPATH": f"{place}{os.pathsep}{environ['PYTHONPATH']}"}
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, env=environ, cwd=place, check=False).returncode
