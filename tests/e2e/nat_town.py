"""Real nodes in a neighbourhood: sentinels and clients outside, hosts in homes behind routers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffuse_core.settings import DEFAULT_PORT, NetworkOptions
from tests.e2e.asking import Asking
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.e2e.routers import Neighbourhood
    from tests.services.tiny_model import TinyModel

NETWORK = NetworkOptions("nat", mdns=False)
WAIT_S = 60.0
POLL_S = 0.2
ESTABLISHED = "01"
"""In the kernel's table of TCP sockets."""


class NatTown(Processes):
    """Each node is named as the machine it runs on, and listens on the usual port there."""

    def __init__(self, directory: Path, around: Neighbourhood, model: TinyModel) -> None:
        super().__init__(directory)
        self.around = around
        self.model = model
        self.sentinels: list[str] = []

    def place(self, name: str) -> str:
        """Where a node would be dialled, if it could be."""
        return f"{self.around.address(name)}:{DEFAULT_PORT}"

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The option that names all sentinels that were started."""
        return ("--bootstrap", ",".join(map(self.place, self.sentinels)))

    def run_node(self, name: str, role: str, *arguments: str) -> None:
        """Start a node on its machine, and wait until it listens."""
        others = self.bootstrap if self.sentinels else ()
        arguments = (role, *arguments, *others, *NETWORK.arguments())
        self.start(name, *arguments, within=self.around.within(name))
        self.address(name)

    def start_sentinels(self, *names: str) -> None:
        """Start sentinels that know each other."""
        for name in names:
            self.run_node(name, "sentinel")
            self.sentinels.append(name)

    def revive_sentinel(self, name: str) -> None:
        """Start a sentinel again that was killed: the same node at the same place."""
        self.run_node(name, "sentinel")

    def run_host(self, name: str, *extra: str) -> None:
        """Start a host of the tiny model on its machine."""
        what = ("--model", str(self.model.path), "--threads", "1", "--dtype", "fp32")
        self.run_node(name, "host", *what, *extra)

    # --- what they say ------------------------------------------------------------------------

    def id_of(self, name: str) -> str:
        """The id that a node printed when it started."""
        return self.log(name).partition(" listens on ")[0].split()[-1]

    def own_status(self, name: str) -> dict[str, Any]:
        """What a node tells its owner: the view and its telemetry."""
        return self._status(name, "--state-dir", str(self.directory / name))

    def status_from(self, name: str, *sentinels: str) -> dict[str, Any]:
        """What somebody new on a machine hears from the first sentinel that answers."""
        places = ",".join(map(self.place, sentinels or self.sentinels))
        return self._status(name, "--bootstrap", places)

    def _status(self, name: str, *arguments: str) -> dict[str, Any]:
        done = self._on(name, "status", "--json", *arguments)
        assert done[0] == 0, done[2]
        return dict(json.loads(done[1]))

    def _on(self, name: str, *arguments: str) -> tuple[int, str, str]:
        words = (*arguments, *NETWORK.arguments())
        done = self.command(*words, within=self.around.within(name))
        return done.returncode, done.stdout, done.stderr

    def node(self, status: dict[str, Any], name: str) -> dict[str, Any] | None:
        """What a status says of a node."""
        own = self.id_of(name)
        return next((node for node in status["nodes"] if node["node"] == own), None)

    def reserved(self, name: str, *at: str, viewer: str = "") -> bool:
        """Whether it is known outside that a node lives and is met through just these sentinels.

        Asked is the first of them, or the node `viewer`.
        """
        status = self.own_status(viewer) if viewer else self.status_from(at[0], *at)
        node = self.node(status, name)
        return (
            node is not None
            and node["liveness"] == "alive"
            and node["state"] in ("ready", None)
            and sorted(node["relays"]) == sorted(map(self.id_of, at))
        )

    def idle(self, name: str) -> bool:
        """Whether a host holds nothing of any session."""
        told = self.own_status(name)["telemetry"]
        return told["sessions"] == 0 and told["kv_used"] == 0

    def connections(self, name: str) -> int:
        """How many TCP connections with a node's port stand, as its own machine tells."""
        table = Path(f"/proc/{self.running[name].pid}/net/tcp").read_text().splitlines()[1:]
        ends = (line.split()[1:4:2] for line in table)
        own = f":{DEFAULT_PORT:04X}"
        return sum(local.endswith(own) and state == ESTABLISHED for local, state in ends)

    def until(self, condition: Callable[[], object], seconds: float = WAIT_S) -> float:
        """Wait for what nodes tell; the seconds it took."""
        begun = time.monotonic()
        while not condition():
            late = time.monotonic() - begun
            assert late < seconds, {name: self.log(name)[-2000:] for name in self.running}
            time.sleep(POLL_S)
        return time.monotonic() - begun

    # --- questions ----------------------------------------------------------------------------

    def _question(self, prompt: str, tokens: int, extra: Sequence[str]) -> tuple[str, ...]:
        return (
            "query", "--model", "tiny", "--raw", "--ignore-eos", "--prompt", prompt,
            "--max-tokens", str(tokens), *extra, *NETWORK.arguments(),
        )  # fmt: skip

    def asks(self, name: str, prompt: str, tokens: int, *extra: str) -> dict[str, Any]:
        """The output of `query --json` on a machine."""
        code, said, error = self.tries(name, prompt, tokens, *extra)
        assert code == 0, error
        return dict(json.loads(said))

    def tries(self, name: str, prompt: str, tokens: int, *extra: str) -> tuple[int, str, str]:
        """Exit code, output and errors of `query --json` on a machine."""
        words = self._question(prompt, tokens, (*self.bootstrap, "--json", *extra))
        done = self.command(*words, within=self.around.within(name))
        return done.returncode, done.stdout, done.stderr

    def asking(self, name: str, prompt: str, tokens: int, *extra: str) -> Asking:
        """A `query` on a machine whose answer is read as it comes."""
        words = self._question(prompt, tokens, (*self.bootstrap, "--timings", *extra))
        return Asking(self.spawn(*words, within=self.around.within(name)))
