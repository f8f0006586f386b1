"""Real `diffuse` processes for end-to-end tests, on loopback, each with its own state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from diffuse_core.settings import running_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

START_S = 60.0
WAIT_S = 60.0
POLL_S = 0.1
ASK_S = 0.5
"""Between questions that start a process: without it, asking takes a whole core."""


def environment(directory: Path) -> dict[str, str]:
    """The environment of commands under test: caches apart from the user's, no colours."""
    return {
        # No test asks the public hub, whatever it names a model.
        "HF_ENDPOINT": "http://127.0.0.1:9",
        **os.environ,
        "NO_COLOR": "1",
        "DIFFUSE_STATE_DIR": str(directory / "default-state"),
    }


class Processes:
    """Starts commands and ends them all, whatever happens in between."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.sentinel = ""

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # Of commands that were not read to their end, as a test that failed leaves them.
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def start(
        self, name: str, *arguments: str, within: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a long-running command, behind the words `within` when there are any.

        Started again under its name, a node keeps its key and adds to its log.
        """
        directory = self.directory / name
        directory.mkdir(exist_ok=True, mode=0o700)
        command = [sys.executable, "-m", "diffuse_core", *arguments]
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [*within, *command, "--state-dir", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.directory),
            )
        self.running[name] = process
        return process

    def log(self, name: str) -> str:
        """What a command wrote so far."""
        return (self.directory / name / "log").read_text(errors="replace")

    def start_sentinel(self) -> str:
        """Start a sentinel on a free port; its address."""
        self.start("sentinel", "sentinel", "--listen", "127.0.0.1:0")
        self.sentinel = self.address("sentinel")
        return self.sentinel

    def start_host(self, name: str, model: str, *extra: str) -> None:
        """Start a host of `model` on a free port."""
        self.start(
            name,
            "host",
            "--model",
            model,
            "--bootstrap",
            self.sentinel,
            "--listen",
            "127.0.0.1:0",
            "--threads",
            "1",
            *extra,
        )

    def address(self, name: str) -> str:
        """The address of a started node, once it listens."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if (found := running_node(self.directory / name)) is not None:
                return found.address
            assert self.running[name].poll() is None, self.log(name)
            time.sleep(POLL_S)
        raise AssertionError(f"{name} did not listen: {self.log(name)}")

    def command(
        self,
        *arguments: str,
        text: str | None = None,
        seconds: float = 120,
        within: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*within, sys.executable, "-m", "diffuse_core", *arguments],
            capture_output=True,
            text=True,
            input=text,
            timeout=seconds,
            check=False,
            env=environment(self.directory),
            stdin=subprocess.DEVNULL if text is None else None,
        )

    def spawn(self, *arguments: str, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start a command whose output the caller reads, and which the caller ends."""
        return subprocess.Popen(
            [*within, sys.executable, "-m", "diffuse_core", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.directory),
        )

    def models(self, *extra: str) -> list[dict[str, Any]]:
        """The output of `models --json`."""
        done = self.command("models", "--bootstrap", self.sentinel, "--json", *extra)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["models"])

    def until_servable(self, hosts: int = 1, seconds: float = 120) -> dict[str, Any]:
        """Wait until a model is servable by at least `hosts` ready hosts."""
        found: list[dict[str, Any]] = []

        def servable() -> bool:
            for name, process in self.running.items():
                assert process.poll() is None, f"{name}: {self.log(name)}"
            served = (model for model in self.models() if model["servable"])
            found.extend(model for model in served if model["hosts"] >= hosts)
            return bool(found)

        self.until(servable, seconds)
        return found[0]

    def until(self, condition: Callable[[], object], seconds: float = WAIT_S) -> float:
        """Wait for what processes tell; the seconds it took."""
        begun = time.monotonic()
        while not condition():
            late = time.monotonic() - begun
            assert late < seconds, {name: self.log(name)[-2000:] for name in self.running}
            time.sleep(ASK_S)
        return time.monotonic() - begun

    def query(self, model: str, prompt: str, *extra: str) -> dict[str, Any]:
        """The output of `query --json`."""
        done = self.command(
            "query", "--bootstrap", self.sentinel, "--model", model, "--prompt", prompt, "--json",
            *extra,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))
