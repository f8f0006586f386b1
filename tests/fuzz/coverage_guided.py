"""Fuzzing led by coverage: libFuzzer, through atheris, chooses what to change; we change it.

Needs the extra `fuzz` (Linux on x86-64). It tells its own figures, and writes inputs that crash
into the folder of findings under names that begin with the target's.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from tests.fuzz.driver import FOUND
from tests.fuzz.mutation import MAX_BYTES
from tests.fuzz.registry import Target

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Fuzz one target; ends the process, as libFuzzer does."""
    try:
        import atheris
    except ImportError:
        sys.stderr.write("atheris is not installed: pip install -e '.[fuzz]'\n")
        return 2
    if arguments.target == "all":
        sys.stderr.write("--atheris takes one target at a time\n")
        return 2
    with atheris.instrument_imports(include=["diffuse_core"]):
        target = Target(arguments.target)
    learnt = FOUND / f"{target.name}-learnt"
    learnt.mkdir(parents=True, exist_ok=True)
    corpus = target.inputs()

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            return atheris.Mutate(data, most)
        return target.mutator(rng, corpus).change(data)[:most]

    minutes = 0 if arguments.minutes is None else arguments.minutes
    options = [
        sys.argv[0],
        f"-runs={arguments.runs}",
        f"-seed={arguments.seed + 1}",
        f"-max_total_time={int(minutes * 60)}",
        f"-max_len={2 * MAX_BYTES}",
        f"-artifact_prefix={FOUND / target.name}-",
        "-timeout=2",
        "-print_final_stats=1",
        str(learnt),
        str(target.corpus),
    ]
    atheris.Setup(options, lambda data: target.run(bytes(data)) and None, custom_mutator=change)
    atheris.Fuzz()
    return 0
