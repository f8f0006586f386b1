"""Hosting from the app: finds out what would fit, starts a Host, sees it through, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError
from diffuse_tui.presenter.fit import last_words, read_fit
from diffuse_tui.presenter.hosting import (
    Complete,
    Completed,
    End,
    Keep,
    Look,
    PlanFor,
    Planned,
    Start,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from diffuse_tui.detached import Detached
    from diffuse_tui.local_node import LocalNode
    from diffuse_tui.presenter.hosting import Choice, News, Order

PLAN_S = 120.0
"""For a plan: the headers of a large model may have to be fetched first."""
COMPLETE_S = 2.0
MOST_OUTPUT = 2**20
MODEL_FILES = (".gguf",)
"""Endings of files that may be models; a directory may be one by what is in it."""

DEMO_REFUSAL = (
    "this is a demo network of its own, which ends with the app: to host a model, quit and run "
    "diffuse-tui without a command"
)
ATTACH_REFUSAL = (
    "diffuse-tui attach never starts a node: to host from the app, run diffuse-tui without a "
    "command"
)


class HostingDesk:
    """Carries out what the Host screen asks for, on the node of this machine.

    Args:
        local: That node.
        refusal: Why no host can be started from here; empty when it can.
        ends: Whether the node that runs may be ended from here.
    """

    def __init__(self, local: LocalNode, refusal: str = "", *, ends: bool = True) -> None:
        self._local = local
        self._refusal = refusal
        self._ends = ends
        self._doing = ""
        self._failure = ""
        self._ending = False

    @property
    def status(self) -> Status:
        """How hosting stands."""
        other = self._local.other()
        return Status(
            refusal=self._refusal,
            doing=self._doing,
            failure=self._failure,
            mine=self._local.hosting is not None,
            other=other,
            earlier=self._local.earlier(other),
            keep=self._local.keep,
            ends=self._ends,
            ending=self._ending,
        )

    async def do(self, order: Order, tell: Callable[[News], None]) -> None:
        """Carry an order out, and tell what comes of it; raises nothing but a cancellation."""
        match order:
            case PlanFor(choice):
                tell(await self._plan(choice))
            case Complete(text):
                tell(await _complete(text))
            case Start(choice):
                await self._start(choice, tell)
            case End(patience):
                await self._end(patience, tell)
            case Keep(keep):
                self._local.keep = keep
                tell(self.status)
            case Look():
                tell(self.status)

    def abandon(self) -> None:
        """A host that is not to go on is asked to end; nobody waits for it."""
        self._local.abandon()

    # --- what would fit ---------------------------------------------------------------------

    async def _plan(self, choice: Choice) -> Planned:
        from diffuse_core.wiring import own_command

        asked = _expanded(choice)
        arguments = [*asked.plan_arguments(), "--json", *self._local.place_arguments()]
        try:
            code, out, err = await _run(own_command("plan", *arguments), self._local.environment())
        except TimeoutError:
            return Planned(choice, None, f"no plan after {PLAN_S:.0f} s; try again")
        except OSError as error:
            return Planned(choice, None, f"the plan cannot be made: {error}")
        fit = read_fit(out) if code == 0 else None
        if fit is None:
            said = last_words(err.decode(errors="replace"))
            return Planned(choice, None, said or "what came is no plan; try again")
        return Planned(choice, fit)

    # --- hosting ----------------------------------------------------------------------------

    async def _start(self, choice: Choice, tell: Callable[[News], None]) -> None:
        if self._refusal or self._doing or self._local.hosting is not None:
            tell(self.status)
            return
        self._ending = False
        with self._busy(f"starting a host of {choice.model}", tell):
            try:
                await self._local.host(_expanded(choice).host_arguments())
            except (DiffuseError, OSError) as error:
                self._failure = last_words(str(error))
        # One that is merely slow to listen runs all the same.
        if (host := self._local.hosting) is not None:
            await self._see_through(host, tell)

    async def _see_through(self, host: Detached, tell: Callable[[News], None]) -> None:
        """Wait for the end of a Host; a bad one that nobody asked for is told with its words."""
        code = await host.ended()
        if code and not self._ending:
            words = last_words(self._local.host_words())
            how = f"signal {-code}" if code < 0 else f"status {code}"
            self._failure = f"the host ended by itself ({how}): {words}"
        tell(self.status)

    async def _end(self, patience: float | None, tell: Callable[[News], None]) -> None:
        if not self._ends:
            tell(self.status)
            return
        self._ending = True
        with self._busy("", tell):
            try:
                await self._local.end(patience)
            except (DiffuseError, OSError) as error:
                self._failure = str(error)
                self._ending = False

    @contextlib.contextmanager
    def _busy(self, doing: str, tell: Callable[[News], None]) -> Iterator[None]:
        """Tell what is under way, then what came of it."""
        self._failure, self._doing = "", doing
        tell(self.status)
        try:
            yield
        finally:
            self._doing = ""
            tell(self.status)


def _expanded(choice: Choice) -> Choice:
    """As a shell would hand it over: a tilde is somebody's home."""
    if not choice.model.startswith("~"):
        return choice
    with contextlib.suppress(RuntimeError):
        return choice._replace(model=str(Path(choice.model).expanduser()))
    return choice


async def _complete(text: str) -> Completed:
    from diffuse_tui.archive.paths import matching_paths

    paths: tuple[str, ...] = ()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(COMPLETE_S):
            paths = await asyncio.to_thread(matching_paths, text, endings=MODEL_FILES)
    return Completed(text, paths)


async def _run(command: list[str], environment: dict[str, str]) -> tuple[int, bytes, bytes]:
    """Run a command to its end, within `PLAN_S` seconds; its status, stdout and stderr.

    Raises:
        TimeoutError: it took longer.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PLAN_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            # With what it started: that would go on, and keep the pipes open.
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            await process.wait()
    return process.returncode or 0, out[:MOST_OUTPUT], err[-MOST_OUTPUT:]
