"""Commands whose output goes nowhere: a full disk, a reader that left; and what they leave."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from diffuse_core.cli import EXIT_OUTPUT, EXIT_PIPE

FULL = Path("/dev/full")
COMMAND = [sys.executable, "-m", "diffuse_core"]
NOBODY = ["status", "--bootstrap", "127.0.0.1:1", "--no-mdns"]

# Each begins a program, which takes a while where others compute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


@full
@pytest.mark.parametrize("words", ["config show", "help hosting", "--help", "completions zsh"])
def test_a_full_disk_is_told_with_what_to_do(words: str) -> None:
    with FULL.open("wb") as out:
        done = subprocess.run(
            [*COMMAND, *words.split()], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == EXIT_OUTPUT
    assert done.stderr == (
        "diffuse: cannot write or read what was asked: no space left on device; make room, or "
        "write elsewhere\n"
    )


@full
@pytest.mark.parametrize(
    ("words", "code"),
    [(["nonsense"], 2), (NOBODY, 5), ([*NOBODY, "--log-format", "json"], 5)],
)
def test_an_error_that_cannot_be_told_keeps_its_code(words: list[str], code: int) -> None:
    with FULL.open("wb") as nowhere:
        done = subprocess.run([*COMMAND, *words], stderr=nowhere, check=False)
    assert done.returncode == code


def test_a_reader_that_left_is_no_defect() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "help", "hosting"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_PIPE, b"")


def test_whatever_the_umask_nobody_else_can_write_what_is_made(tmp_path: Path) -> None:
    place = {**os.environ, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("DIFFUSE_CONFIG", "XDG_CONFIG_HOME"):
        place.pop(name, None)
    done = subprocess.run(
        [*COMMAND, "config", "init"],
        env=place, umask=0, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = sorted(tmp_path.rglob("*"))
    assert [one.name for one in made if one.is_file()] == ["config.toml"]
    assert not [one for one in made if one.stat().st_mode & stat.S_IWOTH]
    assert made[-1].stat().st_mode & 0o777 == 0o600


def test_a_demo_that_nobody_listens_to_leaves_nothing(tmp_path: Path, demo_gguf: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "--hosts", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        assert b"listens on" in demo.stdout.readline()
        demo.stdout.close()
        assert demo.wait(60) == EXIT_PIPE
    assert not list(tmp_path.glob("diffuse-demo-*"))
