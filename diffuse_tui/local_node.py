"""The node on this machine: attached to when one runs, started when none does, or as a Host."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError, Unreachable
from diffuse_tui.presenter.banner import NodeEnded
from diffuse_tui.private_file import open_private, read_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from diffuse_core.ports import Attachment
    from diffuse_core.settings import NetworkOptions
    from diffuse_tui.detached import Detached

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 8.0
POLL_S = 0.05
LOG = "node.log"
HOST_PID = "host.pid"
"""Which process is a Host of the app, for the app's next start."""
HOST_LOG = "host.log"
"""Of its own: why a host ended is still there when a node without a slice runs again."""
LOG_TAIL = 400


class LocalNode:
    """Reaches the node of one state directory.

    A node without a slice that this started ends with it, whatever happens. A Host that this
    started, now or at an earlier time, ends with `stop` at most: when `keep` says so, it goes on.
    Nothing else ends it.
    """

    def __init__(
        self, state: Path, network: NetworkOptions, bootstrap: tuple[str, ...], *, may_start: bool
    ) -> None:
        self._state = state
        self._network = network
        self._bootstrap = bootstrap
        self._may_start = may_start
        self._child: asyncio.subprocess.Process | None = None
        self._host: Detached | None = None
        self._other = False
        """Whether the node that was attached to last is none that this started."""
        self._changing = asyncio.Lock()
        self.keep = True

    @property
    def may_start(self) -> bool:
        """Whether this starts nodes at all."""
        return self._may_start

    @property
    def hosting(self) -> Detached | None:
        """The Host that this started, while it runs."""
        return self._host if self._host is not None and self._host.status is None else None

    def other(self) -> int | None:
        """The process id of the node that runs here, when this did not start it."""
        from diffuse_core.settings import running_node

        found = running_node(self._state)
        if found is None or self.hosting is not None or self._child_runs():
            return None
        return found.pid

    def earlier(self, pid: int | None) -> bool:
        """Whether that process is a Host which the app started at an earlier time, and kept."""
        if pid is None:
            return False
        try:
            return read_kept(self._state / HOST_PID, 32) == b"%d" % pid
        except OSError:
            return False

    def place_arguments(self) -> list[str]:
        """Options that name this node and its network to a command."""
        arguments = ["--state-dir", str(self._state), *self._network.arguments()]
        for address in self._bootstrap:
            arguments += ["--bootstrap", address]
        return arguments

    def environment(self) -> dict[str, str]:
        """The environment of commands on this network; what they say is read here, by people."""
        return {**self._network.environment(), "DIFFUSE_LOG_FORMAT": "text"}

    async def attach(self) -> Attachment:
        """Attach as the owner, starting a node first when none runs.

        A node that somebody else started is not replaced when it ends: with other options than
        it had, the new one might tell addresses that were to be kept back, under the same id.

        Raises:
            NodeEnded: that happened; `replace` lets the next call start one.
            DiffuseError: there is none, or it does not start; the message tells why.
        """
        # Imported here, after the first paint: the screen must not wait for the network's modules.
        from diffuse_core.wiring import attach

        # Not while one node makes room for another.
        async with self._changing:
            mine = self.hosting is not None or self._child_runs()
            if not self._runs() and self._may_start and self.hosting is None:
                if self._other:
                    raise NodeEnded("its node has ended; waiting for it · Esc, s: start one here")
                await self._start()
                mine = True
            attachment = await attach(self._state, self._network)
            self._other = not mine
            return attachment

    def replace(self) -> None:
        """Start a node in the place of one that ended, with the next `attach`."""
        self._other = False

    # --- starting ---------------------------------------------------------------------------

    async def _start(self) -> None:
        from diffuse_core.wiring import own_command

        if not self._child_runs():
            # It names other nodes and where they are: for nobody else's eyes.
            with os.fdopen(open_private(self._state / LOG), "wb") as log:
                self._child = await asyncio.create_subprocess_exec(
                    *own_command("node", *self.place_arguments(), "--exit-with-parent"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self.environment(),
                    start_new_session=True,
                )
        await self._listening(self._child_runs, LOG)

    async def host(self, arguments: Sequence[str]) -> None:
        """Start a Host in the place of the node that runs here, under the same identity.

        `arguments` are those of `diffuse host` that say what to hold. It goes on whatever
        happens to this process.

        Raises:
            DiffuseError: the node that runs does not make room, or the Host did not start, with
                its last words. The next `attach` starts a node without a slice.
        """
        from diffuse_core.wiring import own_command
        from diffuse_tui.detached import Detached

        async with self._changing:
            await self._stop_child()
            if self._runs():
                await self.end(None)
            log = self._state / HOST_LOG
            # It writes there itself, so that the file of weeks does not become too large.
            told = ("--log-file", str(log))
            command = own_command("host", *arguments, *self.place_arguments(), *told)
            self._host = host = Detached(command, log, self.environment())
            with (
                contextlib.suppress(OSError),
                os.fdopen(open_private(self._state / HOST_PID), "w") as file,
            ):
                file.write(str(host.pid))
            self._other = False
            await self._listening(lambda: host.status is None, HOST_LOG)

    async def _listening(self, runs: Callable[[], bool], log: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                while not self._runs():
                    if not runs():
                        raise DiffuseError(f"the node did not start:\n{self._words(log)}")
                    await asyncio.sleep(POLL_S)
                return
        raise Unreachable(
            f"the node is not there after {START_TIMEOUT_S:.0f} s; see {self._state / log}"
        )

    # --- ending -----------------------------------------------------------------------------

    async def end(self, patience: float | None) -> None:
        """Ask the node that runs here to end, and wait: the next `attach` may start another.

        Raises:
            Unreachable, Refused: see `end_node`.
        """
        from diffuse_tui.node_end import end_node

        # Whoever ends it wants another in its place.
        self._other = False
        await end_node(self._state, self._network, patience)

    async def stop(self) -> int | None:
        """End the nodes that this started, by force when they do not listen; but a kept Host.

        A Host that the app started at an earlier time is asked to end where it is not to be kept.
        Gives the process id of a Host that was started and goes on.
        """
        await self._stop_child()
        goes_on = self.hosting.pid if self.hosting is not None and self.keep else None
        if self._host is not None:
            if self.keep:
                self._host.let_go()
            else:
                await self._host.end(STOP_TIMEOUT_S)
        elif not self.keep and self.earlier(self.other()):
            # Once asked it ends, whether anybody waits for it or not.
            with contextlib.suppress(DiffuseError, OSError, TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.end(None)
        return goes_on

    def abandon(self) -> None:
        """There is no time to wait: ask a Host to end that is not kept. A child ends with us."""
        if self.hosting is not None and not self.keep:
            self.hosting.ask()

    async def _stop_child(self) -> None:
        child = self._child
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()

    # --- what runs --------------------------------------------------------------------------

    def _child_runs(self) -> bool:
        return self._child is not None and self._child.returncode is None

    def _runs(self) -> bool:
        from diffuse_core.settings import running_node

        return running_node(self._state) is not None

    def host_words(self) -> str:
        """What the Host that was started last said at its end."""
        return self._words(HOST_LOG)

    def _words(self, name: str) -> str:
        log = self._state / name
        words = ""
        with contextlib.suppress(OSError):
            # A log of weeks is long, and only its end is told.
            end = read_kept(log, 4 * LOG_TAIL, end=True)
            words = end.decode(errors="replace").strip()[-LOG_TAIL:]
        return words or f"it ended without a word; see {log}"
