"""The demo's sentinel listens, whoever has the port that was free a moment ago."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli import demo_network
from diffuse_core.settings import NetworkOptions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_port_that_was_taken_meanwhile_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(demo_network, "_free_port", lambda: port)
        network = demo_network.DemoNetwork(
            1, NetworkOptions(), lambda _: None, str(tmp_path / "demo")
        )
        try:
            await network._start_sentinel()
            assert network.sentinel.startswith("127.0.0.1:")
            assert not network.sentinel.endswith(f":{port}")
        finally:
            await network.stop()
