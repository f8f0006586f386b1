"""Three machines on a LAN, each a network namespace: a cable is pulled, and plugged in again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.settings import NetworkOptions
from tests.e2e.namespaces import Namespaces, namespaces_missing
from tests.e2e.processes import ASK_S, Processes
from tests.services.tiny_model import LAYERS, ids, make_tiny_model, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.services.tiny_model import TinyModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NETWORK = NetworkOptions("lan", mdns=False)
"""Without multicast: who was cut off has to find back by the addresses it knows."""
HOSTS = ("a", "b", "c")
CUTS_S = (20.0, 60.0)
DEAD_S = 40.0
BACK_S = 40.0
TOKENS = 8


class Lan:
    """A sentinel in `s`, hosts in `a`, `b` and `c`; each asked from within its namespace."""

    def __init__(self, directory: Path, cables: Namespaces, processes: Processes) -> None:
        self.directory = directory
        self.cables = cables
        self.processes = processes
        self.model: TinyModel = make_tiny_model(directory / "tiny")
        self.sentinel = ""

    def start(self, name: str, *arguments: str) -> None:
        place = f"{self.cables.address(name)}:0"
        within = self.cables.within(name)
        arguments = (*arguments, "--listen", place, *NETWORK.arguments())
        self.processes.start(name, *arguments, within=within)

    def start_all(self) -> None:
        self.start("s", "sentinel")
        self.sentinel = self.processes.address("s")
        for name in HOSTS:
            self.start(
                name, "host", "--model", str(self.model.path), "--bootstrap", self.sentinel,
                "--max-layers", str(LAYERS // 2), "--threads", "1", "--dtype", "fp32",
            )  # fmt: skip
            self.wait(lambda name=name: self.held("s").get(name), 90)

    def ask(self, name: str, *arguments: str) -> tuple[int, str, str]:
        arguments = (*arguments, *NETWORK.arguments())
        done = self.processes.command(*arguments, within=self.cables.within(name), seconds=60)
        return done.returncode, done.stdout, done.stderr

    def nodes(self, viewer: str) -> dict[str, dict[str, Any]]:
        """What a node says of each, by the name of its namespace."""
        state = str(self.directory / viewer)
        code, out, err = self.ask(viewer, "status", "--json", "--state-dir", state)
        assert code == 0, err
        names = {f"{self.cables.address(name)}:": name for name in ("s", *HOSTS)}
        found = {}
        for node in json.loads(out)["nodes"]:
            host = node["addresses"][0].rpartition(":")[0] + ":"
            found[names[host]] = node
        return found

    def standing(self, viewer: str) -> dict[str, str]:
        return {name: node["liveness"] for name, node in self.nodes(viewer).items()}

    def held(self, viewer: str) -> dict[str, list[int]]:
        """Slices that are ready on nodes that are not dead."""
        return {
            name: node["slice"]
            for name, node in self.nodes(viewer).items()
            if node["state"] == "ready" and node["liveness"] != "dead"
        }

    def wait(self, condition: Callable[[], object], seconds: float) -> float:
        """Wait until it holds; the seconds it took."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin >= seconds:
                pytest.fail(self.told(f"not in {seconds:.0f} s"))
            time.sleep(ASK_S)
        return time.monotonic() - begin

    def told(self, what: str) -> str:
        """What it was, what each node sees and what each has logged."""
        told = [f"{what}, at {time.strftime('%H:%M:%S')}"]
        for name in ("s", *HOSTS):
            log = self.processes.log(name)[-3000:]
            told.append(f"--- {name} sees {self.standing(name)}, held {self.held(name)}:\n{log}")
        return "\n".join(told)

    def answers(self, asking: str) -> tuple[int, float]:
        """One query from a namespace: its exit code, right words checked, and its seconds."""
        begin = time.monotonic()
        code, out, err = self.ask(
            asking, "query", "--model", "tiny", "--bootstrap", self.sentinel, "--raw", "--json",
            "--ignore-eos", "--max-tokens", str(TOKENS), "--prompt", words(5),
        )  # fmt: skip
        took = time.monotonic() - begin
        if code == 0:
            said = tuple(json.loads(out)["token_ids"])
            assert said == self.model.says(ids(5), TOKENS, ignore_eos=True)
        else:
            assert code in (4, 7), err
        return code, took


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    if reason := namespaces_missing():
        pytest.skip(reason)
    with Namespaces("s", *HOSTS) as cables, Processes(tmp_path) as processes:
        lan = Lan(tmp_path, cables, processes)
        lan.start_all()
        yield lan


def test_a_host_behind_a_cut_is_held_dead_and_is_back_without_a_restart(lan: Lan) -> None:
    for seconds in CUTS_S:
        cut_and_mend(lan, seconds)
    assert all(process.poll() is None for process in lan.processes.running.values())


def cut_and_mend(lan: Lan, cut_s: float) -> None:
    everybody = dict.fromkeys(("s", *HOSTS), "alive")
    lan.wait(lambda: all(lan.standing(name) == everybody for name in ("s", *HOSTS)), 20)
    slices = list(lan.held("s").values())
    assert lan.answers("c")[0] == 0
    # Whoever holds its half alone is cut off, so that one of the other two has to move.
    lonely = next(name for name in HOSTS if slices.count(lan.held("s")[name]) == 1)
    others = [name for name in ("s", *HOSTS) if name != lonely]
    began = time.monotonic()
    lan.cables.cut(lonely)
    lan.answers(others[-1])
    lan.wait(lambda: all(lan.standing(name)[lonely] == "dead" for name in others), DEAD_S)
    alone = dict.fromkeys(others, "dead") | {lonely: "alive"}
    lan.wait(lambda: lan.standing(lonely) == alone, DEAD_S)
    # One of the two that held the same takes the half that is missing.
    lan.wait(lambda: len(set(map(tuple, lan.held("s").values()))) == 2, 60)
    assert lan.answers(others[-1])[0] == 0
    while time.monotonic() - began < cut_s:
        time.sleep(0.5)
    lan.cables.mend(lonely)
    lan.wait(lambda: all(lan.standing(name) == everybody for name in ("s", *HOSTS)), BACK_S)
    lan.wait(lambda: len(lan.held(lonely)) == len(HOSTS), BACK_S)
    assert lan.answers(lonely)[0] == 0
