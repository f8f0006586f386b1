"""Fuzzing by hand: `python -m tests.fuzz TARGET|all [--runs N] [--seed S] [--minutes M]`.

`--input FILE` replays one input, `--atheris` lets libFuzzer choose by coverage, `--write-samples`
writes the samples of which the corpus consists.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import traceback
from pathlib import Path

from tests.fuzz.driver import LastInput, fuzz, last_input, replay, save
from tests.fuzz.registry import NAMES, Target
from tests.fuzz.watch import MIB, Figures, Finding

DEFAULT_RUNS = 100_000


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a command


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*NAMES, "all"])
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="inputs per target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="stop earlier than after all runs")
    parser.add_argument("--input", type=Path, help="replay this file")
    parser.add_argument("--atheris", action="store_true", help="needs the extra `fuzz`")
    parser.add_argument("--write-samples", action="store_true")
    return parser.parse_args()


def _each(arguments: argparse.Namespace) -> int:
    """Every target in a process of its own, so that one cannot spoil the figures of another."""
    failed = 0
    for name in NAMES:
        command = [sys.executable, "-m", "tests.fuzz", name]
        command += ["--runs", str(arguments.runs), "--seed", str(arguments.seed)]
        if arguments.minutes is not None:
            command += ["--minutes", str(arguments.minutes)]
        code = subprocess.run(command, check=False).returncode
        if code < 0:
            data = LastInput.read(last_input(name))
            path = save(name, Finding(data, RuntimeError("killed")))
            _say(f"{name}: killed by signal {-code}; {_replay_hint(name, path)}")
        failed += code != 0
    return min(failed, 1)


def _replay_hint(name: str, path: Path) -> str:
    return f"replay with: python -m tests.fuzz {name} --input {os.path.relpath(path)}"


def _report(name: str, figures: Figures) -> None:
    rate = figures.inputs / max(figures.wall_s, 1e-9)
    common = ", ".join(f"{word} {count}" for word, count in figures.outcomes.most_common(8))
    _say(
        f"{name}: {figures.inputs} inputs in {figures.wall_s:.0f} s ({rate:.0f}/s), memory grew "
        f"by {figures.growth / MIB:.1f} MiB, the slowest took {figures.slowest_s * 1e3:.1f} ms "
        f"({len(figures.slowest)} bytes)\n    {len(figures.outcomes)} outcomes: {common}"
    )


def _one(arguments: argparse.Namespace) -> int:
    target = Target(arguments.target)
    _say(
        f"{target.name}: seed {arguments.seed}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, "
        f"nice {os.nice(0)}"
    )
    try:
        if arguments.input is not None:
            figures = replay(target, [arguments.input.read_bytes()])
        else:
            figures = fuzz(
                target, runs=arguments.runs, seed=arguments.seed, minutes=arguments.minutes
            )
    except Finding as finding:
        traceback.print_exception(finding.cause)
        path = arguments.input or save(target.name, finding)
        _say(f"{target.name}: {finding}\n{_replay_hint(target.name, path)}")
        return 1
    _report(target.name, figures)
    return 0


def main() -> int:
    """Do what the command line says; 1 when something was found."""
    arguments = _arguments()
    names = NAMES if arguments.target == "all" else (arguments.target,)
    if arguments.write_samples:
        for name in names:
            _say(f"{name}: {Target(name).write_samples()} samples")
        return 0
    if arguments.atheris:
        from tests.fuzz.coverage_guided import run

        return run(arguments)
    return _each(arguments) if arguments.target == "all" else _one(arguments)


if __name__ == "__main__":
    sys.exit(main())
