"""Processes that our own processes start: settings do not pull them elsewhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from diffuse_core.settings import NetworkOptions
from diffuse_tui.local_node import LocalNode
from tests.e2e.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ELSEWHERE = f"""
bootstrap = "127.0.0.1:9"
network = "theirs"
network-key = "theirs"
allow = "{"ab" * 32}"
mdns = false
state-dir = "/proc/none"
max-layers = 1
relay = "never"
listen = "192.0.2.1:9"
dtype = "fp32"
max-nodes = 1
log-level = "debug"

[host]
memory = "1MiB"
model = "/nowhere.gguf"
device = "cuda"

[sentinel]
public-addr = "192.0.2.1:9"
"""

SMALL = ("--hosts", "2", "--max-tokens", "4", "--ask", "Hello")


def test_the_hosts_of_a_demo_take_nothing_from_settings(tmp_path: Path, demo_gguf: Path) -> None:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text(ELSEWHERE)
    done = subprocess.run(
        [sys.executable, "-m", "diffuse_core", "demo", *SMALL],
        env={**environment(tmp_path), "DIFFUSE_CONFIG": str(file), "DIFFUSE_HOST_THREADS": "0"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


async def test_the_node_of_the_app_is_on_the_network_of_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text(ELSEWHERE.replace('listen = "192.0.2.1:9"', 'listen = "127.0.0.1:0"'))
    monkeypatch.setenv("DIFFUSE_CONFIG", str(file))
    monkeypatch.setenv("DIFFUSE_NODE_NETWORK_KEY", "of the environment")
    for network in (NetworkOptions(mdns=False), NetworkOptions("ours", "hush", mdns=False)):
        state = tmp_path / network.name
        state.mkdir(mode=0o700)
        node = LocalNode(state, network, (), may_start=True)
        try:
            attachment = await node.attach()
            async with contextlib.aclosing(attachment.updates()) as updates:
                update = await anext(updates)
            # What the app says nothing about is the user's, as in a shell.
            me = next(one for one in update.view.nodes if one.me)
            assert [address.rpartition(":")[0] for address in me.addresses] == ["127.0.0.1"]
            await attachment.close()
        finally:
            await node.stop()
