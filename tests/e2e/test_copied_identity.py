"""A host whose state directory was copied: what is left when the copy is gone again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import Processes
from tests.services.tiny_model import ids, make_tiny_model, words

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ASK = ("--raw", "--max-tokens", "8", "--ignore-eos", "--temperature", "0")
WAIT_S = 60.0
BACK_S = 20.0
"""Twice the longest pause between two comparisons of tables, with slack for starting commands."""


@pytest.mark.parametrize(("role", "long"), [("host", False), ("sentinel", False), ("host", True)])
def test_a_host_is_listed_again_soon_after_its_copy_said_farewell(
    role: str, tmp_path: Path, *, long: bool
) -> None:
    tiny, host = make_tiny_model(tmp_path / "tiny"), str(tmp_path / "host")
    with Processes(tmp_path) as town:
        town.start_sentinel()
        town.start_host("host", str(tiny.path), "--dtype", "fp32")
        town.until_servable()
        key, copied = str(tmp_path / "key"), str(tmp_path / "copy")
        for verb, state in (("export", host), ("import", copied)):
            assert town.command("identity", verb, key, "--state-dir", state).returncode == 0
        if role == "host":
            town.start_host("copy", str(tiny.path), "--dtype", "fp32")
        else:
            town.start("copy", role, "--listen", "127.0.0.1:0", "--bootstrap", town.sentinel)
        _until_log(town, "sentinel", "gave up")
        if long:
            # The sentinel answers the copy by now, and the host takes it for dead.
            _until_log(town, "host", " died")
        copy = town.running.pop("copy")
        copy.terminate()
        assert copy.wait(30) == 0
        _until_log(town, "sentinel", " left")
        town.until_servable(seconds=BACK_S)
        _until_log(town, "host", "another process runs with the same identity")
        answer = town.query("tiny", words(9), *ASK)
        assert tuple(answer["token_ids"]) == tiny.says(ids(9), 8, ignore_eos=True)


def _until_log(town: Processes, name: str, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in town.log(name):
        assert time.monotonic() < deadline, (name, town.log(name))
        time.sleep(0.1)
