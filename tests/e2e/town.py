"""Towns of real nodes, some of which nobody can dial: on loopback, and behind routers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffuse_core.settings import DEFAULT_PORT, NetworkOptions
from tests.e2e.asking import Asking
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.routers import Neighbourhood
    from tests.services.tiny_model import TinyModel

NETWORK = NetworkOptions("town", mdns=False)
ESTABLISHED = "01"
"""In the kernel's table of TCP sockets."""


class Town(Processes):
    """Sentinels, hosts and clients on loopback, each node with a name of its own."""

    def __init__(self, directory: Path, model: TinyModel) -> None:
        super().__init__(directory)
        self.model = model
        self.sentinels: list[str] = []
        self._places: dict[str, str] = {}

    def within(self, name: str) -> Sequence[str]:
        """What to put before a command for it to run on a machine."""
        del name
        return ()

    def place(self, name: str) -> str:
        """Where a node can be dialled, or could be if others were let in."""
        return self._places[name]

    def listening(self, name: str) -> tuple[str, ...]:
        """The options that say where a node listens: at its old place if it had one."""
        return ("--listen", self._places.get(name, "127.0.0.1:0"))

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The option that names all sentinels that were started."""
        return ("--bootstrap", ",".join(map(self.place, self.sentinels)))

    def run_node(self, name: str, role: str, *arguments: str) -> None:
        """Start a node on its machine, and wait until it listens."""
        others = self.bootstrap if self.sentinels else ()
        where = () if "--listen" in arguments else self.listening(name)
        words = (role, *arguments, *where, *others, *NETWORK.arguments())
        self.start(name, *words, within=self.within(name))
        self._places[name] = self.address(name)

    def start_sentinels(self, *names: str) -> None:
        """Start sentinels that know each other."""
        for name in names:
            self.run_node(name, "sentinel")
            self.sentinels.append(name)

    def kill(self, name: str) -> float:
        """End a process at once; the monotonic time of it."""
        self.running[name].kill()
        killed = time.monotonic()
        self.running[name].wait()
        return killed

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
        done = self.command(*words, within=self.within(name))
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
        own = f":{int(self.place(name).rpartition(':')[2]):04X}"
        return sum(local.endswith(own) and state == ESTABLISHED for local, state in ends)

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
        done = self.command(*words, within=self.within(name))
        return done.returncode, done.stdout, done.stderr

    def asking(self, name: str, prompt: str, tokens: int, *extra: str) -> Asking:
        """A `query` on a machine whose answer is read as it comes."""
        words = self._question(prompt, tokens, (*self.bootstrap, "--timings", *extra))
        return Asking(self.spawn(*words, within=self.within(name)))


class NatTown(Town):
    """Each node is named as the machine it runs on, and listens at the usual port there."""

    def __init__(self, directory: Path, around: Neighbourhood, model: TinyModel) -> None:
        super().__init__(directory, model)
        self.around = around

    def within(self, name: str) -> Sequence[str]:
        """What to put before a command for it to run on a machine."""
        return self.around.within(name)

    def place(self, name: str) -> str:
        """Where a node can be dialled, or could be if others were let in."""
        return f"{self.around.address(name)}:{DEFAULT_PORT}"

    def listening(self, name: str) -> tuple[str, ...]:
        """Nothing is said: all interfaces, as by default."""
        del name
        return ()
