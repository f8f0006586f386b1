"""Pictures of a real demo network: processes, model, question and answer are all real.

    python screenshots/live.py [--out DIR]

Node ids, times and rates differ between runs; everything else is what a user sees.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from make import HERE, capture, chat

from diffuse_core.cli.demo import demo_network
from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.settings import PUBLIC
from diffuse_tui.app import DiffuseApp
from diffuse_tui.local_node import LocalNode

SIZES = {"demo": (120, 40), "demo-80x24": (80, 24)}


async def render(out: Path) -> None:
    """Start a demo network, ask it, and take a picture in each size."""
    async with demo_network(3, PUBLIC, "bf16") as network:
        for name, size in SIZES.items():
            node = LocalNode(network.state_dir("host-1"), PUBLIC, (), may_start=False)
            app = DiffuseApp(node.attach, model=DEMO_MODEL_ID)
            async with app.run_test(size=size) as pilot:
                await pilot.pause(2.5)
                await chat(pilot)
                await pilot.pause(1.5)
                print(capture(app, out / name))


def main() -> None:
    """Render all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    asyncio.run(render(options.out))


if __name__ == "__main__":
    main()
