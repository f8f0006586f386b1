"""Two versions in one network, as real processes: `python -m tests.wire.mixed --old CHECKOUT`.

Sentinels, hosts and clients of an older checkout and of this one serve the tiny model together.
Every answer must be the same tokens, whoever asks whom; and when all hosts of one version are
killed in the middle of an answer, those of the other go on with it. Owners' commands of one
version ask and stop nodes of the other.

    git worktree add --detach /tmp/old COMMIT
    python -m tests.wire.mixed --old /tmp/old
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from diffuse_core.settings import running_node
from tests.e2e.asking import Asking
from tests.e2e.processes import Processes
from tests.services.tiny_model import WORDS, ids, make_tiny_model, words
from tests.wire.checkout import TESTS, environment

if TYPE_CHECKING:
    from tests.services.tiny_model import TinyModel

    Version = Literal["old", "new"]

CONTEXT = 1024
LONG = 600
"""Tokens of the answers in whose middle hosts are killed."""
STRUCK = 60
"""So many words of it were read then."""
PROMPTS = (3, 17, 40)
COUNT = 24
SAMPLED = ("--temperature", "0.9", "--top-p", "0.9", "--seed", "5")
CAP, HOSTS = "5", 2
"""Of the model's ten layers so many are held by each, so many hosts of a version hold them all."""
TRIES = 6
OTHER: dict[str, Version] = {"old": "new", "new": "old"}


class Mixed:
    """One network, and the checks that are made on it."""

    def __init__(self, processes: Processes, tiny: TinyModel, places: dict[str, Path]) -> None:
        self.processes = processes
        self.tiny = tiny
        self.within = {version: _within(place) for version, place in places.items()}
        self.hosts: dict[str, tuple[str, ...]] = {}
        """The options of the hosts of each version that runs."""
        self.routes: Counter[str] = Counter()
        self.healed: Counter[str] = Counter()
        self._said: dict[tuple[str, ...], list[int]] = {}

    def start_sentinel(self, version: Version) -> None:
        """Start the sentinel."""
        listen = ("sentinel", "--listen", "127.0.0.1:0")
        self.processes.start("sentinel", *listen, within=self.within[version])
        self.processes.sentinel = self.processes.address("sentinel")

    def start_hosts(self, version: Version, *extra: str) -> None:
        """Start the hosts of a version; returns when all that run are ready."""
        for number in range(HOSTS):
            self.processes.start(
                f"{version}-{number}",
                *("host", "--model", str(self.tiny.path), "--bootstrap", self.processes.sentinel),
                *("--listen", "127.0.0.1:0", "--threads", "1", "--dtype", "fp32"),
                *("--max-layers", CAP, *extra),
                within=self.within[version],
            )
        self.hosts[version] = extra
        self.processes.until_servable(HOSTS * len(self.hosts))

    def kill_hosts(self, version: Version) -> None:
        """All hosts of a version die at once."""
        dead = [self.processes.running.pop(f"{version}-{number}") for number in range(HOSTS)]
        for process in dead:
            process.send_signal(signal.SIGKILL)
        for process in dead:
            process.wait()
        del self.hosts[version]

    def query(self, version: Version, count: int, *extra: str) -> dict[str, Any]:
        """What a client of a version is answered."""
        done = self.processes.command(
            *self._query(count, "--json", *extra), within=self.within[version]
        )
        assert done.returncode == 0, (version, done.stderr)
        return dict(json.loads(done.stdout))

    def _query(self, count: int, *extra: str) -> tuple[str, ...]:
        asked = ("--bootstrap", self.processes.sentinel, "--model", self.tiny.path.name)
        return ("query", *asked, "--raw", "--prompt", words(count), "--ignore-eos", *extra)

    def check_answers(self, version: Version) -> None:
        """A client of a version gets the right tokens, greedy and sampled ones."""
        limit = ("--max-tokens", str(COUNT))
        for count in PROMPTS:
            greedy = self.query(version, count, *limit, "--temperature", "0")
            right = list(self.tiny.says(ids(count), COUNT, ignore_eos=True))
            assert greedy["token_ids"] == right, (version, count, greedy["token_ids"], right)
            drawn = self.query(version, count, *limit, *SAMPLED)
            known = self._said.setdefault((str(count),), drawn["token_ids"])
            assert drawn["token_ids"] == known, (version, count, drawn["token_ids"], known)
            for answer in (greedy, drawn):
                self.routes[f"{version} client: {self._route(answer)}"] += 1

    def _route(self, answer: dict[str, Any]) -> str:
        return " → ".join(self._version_of(step["node"]) for step in answer["route"])

    def _version_of(self, node: str) -> Version:
        for name in self.processes.running:
            found = running_node(self.processes.directory / name)
            if found is not None and found.node == node:
                return "old" if name.startswith("old") else "new"
        raise AssertionError(f"{node} is no host of this network")

    def check_failover(self) -> None:
        """The hosts of a version die in the middle of answers, and the others go on.

        It is always the version that answers would be given by. Its new hosts are unknown for a
        while, so that the next answers are given by the other one.
        """
        for number in range(TRIES):
            asking: Version = "new" if number % 2 else "old"
            killed = self._version_of(
                self.query(asking, 7, "--max-tokens", "4")["route"][0]["node"]
            )
            other = OTHER[killed]
            struck = self._struck(asking, killed)
            self.start_hosts(killed, *self.hosts[other])
            if struck:
                self.healed[f"{asking} client: {killed} → {other}"] += 1
            if len({what.partition(": ")[2] for what in self.healed}) == len(OTHER):
                return
        raise AssertionError(f"answers went on only so: {dict(self.healed)}")

    def _struck(self, asking: Version, killed: Version) -> bool:
        """Whether an answer went on without the hosts that died in its middle."""
        limit = ("--max-tokens", str(LONG), "--temperature", "0", "--grace", "60", "--timings")
        asked = self._query(7, *limit, "--no-speculation")
        said = self.tiny.says(ids(7), LONG, ignore_eos=True)  # First: it takes a while.
        process = self.processes.spawn(*asked, within=self.within[asking])
        with Asking(process) as answer:
            answer.until_words(STRUCK)
            self.kill_hosts(killed)
            assert answer.finish() == 0, answer.errors
            # Special tokens show nothing.
            assert answer.words == [f"w{token}" for token in said if token < WORDS], answer.words
            went_on = "went on" in answer.errors
            if not went_on:
                _say(f"    not struck: {' | '.join(answer.errors.splitlines()[-4:])}")
            return went_on

    def check_owners(self) -> None:
        """Commands of each version ask nodes of the other for their view."""
        for version in self.hosts:
            state = ("--state-dir", str(self.processes.directory / f"{version}-0"), "--json")
            other = self.within[OTHER[version]]
            done = self.processes.command("status", *state, within=other)
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert told["telemetry"]["model"] == self.tiny.path.name, told["telemetry"]

    def check_stopping(self) -> None:
        """Commands of each version end nodes of the other in an orderly way."""
        for version in list(self.hosts):
            state = ("--state-dir", str(self.processes.directory / f"{version}-0"))
            done = self.processes.command("stop", *state, within=self.within[OTHER[version]])
            assert done.returncode == 0, done.stderr
            assert self.processes.running[f"{version}-0"].wait(30) == 0


def _within(place: Path) -> tuple[str, ...]:
    """The words before a command that let it run the code of a checkout."""
    found = environment(place)
    return ("env", *(f"{name}={found[name]}" for name in ("PYTHONPATH", "PYTHONSAFEPATH")))


def run(old: Path, sentinel: Version, first: Version, *extra: str) -> None:
    """One network whose hosts of the version `first` are there before the others."""
    places = {"old": old, "new": TESTS.parent}
    with tempfile.TemporaryDirectory() as place:
        tiny = make_tiny_model(Path(place) / "tiny", context=CONTEXT)
        with Processes(Path(place)) as processes:
            mixed = Mixed(processes, tiny, places)
            _say(f"{sentinel} sentinel, {first} hosts {' '.join(extra)}")
            mixed.start_sentinel(sentinel)
            mixed.start_hosts(first, *extra)
            for client in ("old", "new"):
                mixed.check_answers(client)
            _say(f"and {OTHER[first]} hosts")
            mixed.start_hosts(OTHER[first], *extra)
            for client in ("old", "new"):
                mixed.check_answers(client)
            mixed.check_owners()
            mixed.check_failover()
            for client in ("old", "new"):
                mixed.check_answers(client)
            mixed.check_stopping()
            for told in (mixed.routes, mixed.healed):
                for what, count in sorted(told.items()):
                    _say(f"    {count:3d} × {what}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a command


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.wire.mixed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--old", type=Path, required=True, help="a checkout of an older version")
    parser.add_argument(
        "--relayed", action="store_true", help="also a network whose hosts nobody can dial"
    )
    given = parser.parse_args()
    run(given.old, "old", "new")
    run(given.old, "new", "old")
    if given.relayed:
        run(given.old, "old", "new", "--relay", "always")
    _say("all answers were right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
