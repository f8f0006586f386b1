"""Private mode from the command line, with the real SmolLM2 in real processes."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, demo_gguf: Path) -> Iterator[Processes]:
    """Two hosts of half of the model each."""
    with Processes(tmp_path_factory.mktemp("network")) as processes:
        processes.start_sentinel()
        for number in range(2):
            processes.start_host(f"host-{number}", "demo", "--max-layers", "15", "--dtype", "bf16")
        processes.until_servable(hosts=2)
        yield processes


@pytest.mark.parametrize(
    ("options", "tail"),
    [
        (("--temperature", "0"), ()),
        (("--temperature", "1", "--seed", "5"), ("--private-tail", "2")),
    ],
)
def test_the_answer_is_that_of_the_network(
    network: Processes, options: tuple[str, ...], tail: tuple[str, ...]
) -> None:
    asked = (*options, "--max-tokens", "16")
    plain = network.query("demo", QUESTION, *asked)
    private = network.query("demo", QUESTION, *asked, "--private", "4", *tail)
    assert private["text"] == plain["text"]
    assert private["token_ids"] == plain["token_ids"]
    vias = [step["via"] for step in private["route"]]
    assert vias == ["local", "direct", "direct", *(["local"] if tail else [])]
    assert private["route"][0]["slice"] == [0, 4]


def test_what_it_takes_is_told_before_the_answer(network: Processes) -> None:
    told = network.command(
        "query", "--bootstrap", network.sentinel, "--model", "demo", "--prompt", QUESTION,
        "--max-tokens", "4", "--private", "2", "--private-tail", "1",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "private: layers 0:2 and 29:30 take " in told.stderr
    assert "MiB of weights and " in told.stderr
    assert "GiB free)" in told.stderr


def test_a_chat_loads_its_layers_once(network: Processes) -> None:
    told = network.command(
        "chat", "--bootstrap", network.sentinel, "--model", "demo", "--max-tokens", "4",
        "--private", "2", text="Hi\nAnd you?\n/quit\n",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stderr.count("private: layers 0:2 take ") == 1
    assert len(told.stdout.splitlines()) >= 2


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--private", "29", "--private-tail", "2"), 2, "use at most --private 27"),
        (("--private", "2", "--private-model", "no/such/place"), 3, "no/such/place"),
    ],
)
def test_what_cannot_be_is_refused(
    network: Processes, options: tuple[str, ...], code: int, words: str
) -> None:
    done = network.command(
        "query", "--bootstrap", network.sentinel, "--model", "demo", "--prompt", "Hi", *options
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_an_interruption_ends_it_at_once(network: Processes) -> None:
    asking = network.spawn(
        "query", "--bootstrap", network.sentinel, "--model", "demo", "--prompt", "Tell a story.",
        "--max-tokens", "2000", "--ignore-eos", "--private", "4", "--private-tail", "2",
    )  # fmt: skip
    assert asking.stdout is not None
    assert asking.stdout.read(1)
    began = time.monotonic()
    asking.send_signal(signal.SIGINT)
    asking.communicate(timeout=20)
    assert asking.returncode == 130
    assert time.monotonic() - began < 3
