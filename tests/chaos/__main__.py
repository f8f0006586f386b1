"""Soak and chaos: minutes of load while all kinds of things go wrong.

    python -m tests.chaos --minutes 10 --seed 1

Real processes on loopback, of which hosts, sentinels and clients are killed, ended, stopped, cut
off, slowed, given a wrong time of day, full disks, damaged models, little memory and few files.
Each answer is compared with what one process says. Ends with a table, and with 1 when anything was
seen that must not be. The same seed does the same things; the digest of its plan tells.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diffuse_core.adapters.models.demo import fetch_demo
from diffuse_core.settings import cache_dir
from tests.chaos.fault_plan import DECK
from tests.chaos.questions import of_demo, of_tiny
from tests.chaos.story import Options, Story
from tests.services.tiny_model import LAYERS, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = 2048
DEMO_LAYERS = 30
DAMAGE = ("rot", "corrupt")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--model", default="tiny", choices=["tiny", "demo"])
    parser.add_argument("--kinds", default=",".join(DECK), help="faults to draw from")
    parser.add_argument("--plan", action="store_true", help="print the faults, and do nothing")
    parser.add_argument("--keep", help="a directory to work in, which stays")
    return parser.parse_args(arguments)


def story_in(directory: Path, given: Options, model: str) -> Story:
    """A run that is to be in a directory that is there."""
    if model == "demo":
        answers = of_demo(fetch_demo(cache_dir() / "models", lambda _: None))
    else:
        answers = of_tiny(make_tiny_model(directory / "tiny", CONTEXT))
    os.environ["DIFFUSE_CACHE_DIR"] = f"{directory}/cache"
    return Story(directory, given, answers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as a command."""
    given = options(arguments)
    demo = given.model == "demo"
    # Only the tensors of a directory are damaged.
    kinds = [kind for kind in given.kinds.split(",") if not demo or kind not in DAMAGE]
    layers = DEMO_LAYERS if demo else LAYERS
    asked = Options(given.seed, 60 * given.minutes, given.hosts, layers, tuple(kinds))
    click.echo(
        f"seed {asked.seed}, {given.minutes:g} minutes, {asked.hosts} hosts, "
        f"{len(asked.faults)} faults; plan {asked.digest}; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    if given.plan:
        for fault in asked.faults:
            click.echo(fault)
        return 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        directory = Path(given.keep or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        story = story_in(directory, asked, given.model)
        try:
            asyncio.run(story.run())
        except (KeyboardInterrupt, SystemExit) as ended:
            story.ledger.violation(f"it was ended before its time ({type(ended).__name__})")
    click.echo(story.table)
    for text in story.ledger.violations:
        click.echo(f"VIOLATION: {text}")
    click.echo(f"seed {asked.seed}: {'failed' if story.ledger.violations else 'stood'}")
    return bool(story.ledger.violations)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
