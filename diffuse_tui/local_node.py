"""The node on this machine: attached to when one runs, started as a child when none does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from diffuse_core.errors import DiffuseError, Unreachable
from diffuse_tui.presenter.banner import NodeEnded

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.ports import Attachment
    from diffuse_core.settings import NetworkOptions

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 8.0
POLL_S = 0.05
LOG = "node.log"
LOG_TAIL = 400


class LocalNode:
    """Reaches the node of one state directory. A node that this started ends with it."""

    def __init__(
        self, state: Path, network: NetworkOptions, bootstrap: tuple[str, ...], *, may_start: bool
    ) -> None:
        self._state = state
        self._network = network
        self._bootstrap = bootstrap
        self._may_start = may_start
        self._child: asyncio.subprocess.Process | None = None
        self._other = False
        """Whether the node that was attached to last is none that this started."""

    async def attach(self) -> Attachment:
        """Attach as the owner, starting a node first when none runs.

        A node that somebody else started is not replaced when it ends: with other options than
        it had, the new one might tell addresses that were to be kept back, under the same id.

        Raises:
            NodeEnded: that happened; `replace` lets the next call start one.
            DiffuseError: there is none, or it does not start; the message tells why.
        """
        # Imported here, after the first paint: the screen must not wait for the network's modules.
        from diffuse_core.settings import running_node
        from diffuse_core.wiring import attach

        if running_node(self._state) is None and self._may_start:
            if self._other:
                raise NodeEnded("its node has ended; waiting for it · Esc, s: start one here")
            await self._start()
        attachment = await attach(self._state, self._network)
        self._other = self._child is None or self._child.returncode is not None
        return attachment

    def replace(self) -> None:
        """Start a node in the place of one that ended, with the next `attach`."""
        self._other = False

    async def _start(self) -> None:
        from diffuse_core.settings import running_node
        from diffuse_core.wiring import own_command

        if self._child is None or self._child.returncode is not None:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            arguments = ["node", "--state-dir", str(self._state), *self._network.arguments()]
            for address in self._bootstrap:
                arguments += ["--bootstrap", address]
            # It names other nodes and where they are: for nobody else's eyes.
            self._log().touch(0o600)
            self._log().chmod(0o600)
            with self._log().open("wb") as log:
                self._child = await asyncio.create_subprocess_exec(
                    *own_command(*arguments, "--exit-with-parent"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self._network.environment(),
                    start_new_session=True,
                )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                while running_node(self._state) is None:
                    if self._child.returncode is not None:
                        raise DiffuseError(f"the node did not start: {self._last_words()}")
                    await asyncio.sleep(POLL_S)
                return
        raise Unreachable(f"the node did not start in {START_TIMEOUT_S:.0f} s; see {self._log()}")

    def _log(self) -> Path:
        return self._state / LOG

    def _last_words(self) -> str:
        try:
            words = self._log().read_text(errors="replace").strip()[-LOG_TAIL:]
        except OSError:
            words = ""
        return words or f"it ended without a word; see {self._log()}"

    async def stop(self) -> None:
        """End the node if this started it; by force when it does not listen."""
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
