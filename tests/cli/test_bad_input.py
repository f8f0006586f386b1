"""What people type wrong: a clear word on stderr, and the exit code that the README names."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli import run
from diffuse_core.settings import parse_address, parse_bootstrap, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASK = ["query", "--model", "m", "--prompt", "hi"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["frobnicate"], "No such command"),
        ([*ASK[:-1], ""], "empty"),
        ([*ASK, "--raw", "--system", "s"], "--system"),
        ([*ASK, "--temperature", "nan"], "nan"),
        ([*ASK, "--top-p", "0"], "top-p"),
        ([*ASK, "--top-k", str(2**70)], "top-k"),
        ([*ASK, "--max-tokens", "0"], "max-tokens"),
        ([*ASK, "--max-tokens", "3", "--min-tokens", "4"], "more than --max-tokens 3"),
        ([*ASK, "--min-p", "nan"], "nan"),
        ([*ASK, "--min-p", "1.1"], "min-p"),
        ([*ASK, "--repetition-penalty", "0"], "repetition-penalty"),
        ([*ASK, "--presence-penalty", "101"], "presence-penalty"),
        ([*ASK, "--frequency-penalty", "inf"], "frequency-penalty"),
        ([*ASK, "--logit-bias", "7"], "ID=VALUE"),
        ([*ASK, "--logit-bias", "seven=1"], "ID=VALUE"),
        ([*ASK, "--logit-bias", "-1=1"], "no token id"),
        ([*ASK, "--logit-bias", f"{2**24 + 1}=1"], "no token id"),
        ([*ASK, "--logit-bias", "7=nan"], "-1000 to 1000"),
        ([*ASK, "--logit-bias", "7=1001"], "-1000 to 1000"),
        ([*ASK, "--logit-bias", "7=1", "--logit-bias", "7=2"], "twice"),
        ([*ASK, "--n", "0"], "--n"),
        ([*ASK, "--n", "33"], "--n"),
        ([*ASK, "--logprobs", "21"], "logprobs"),
        ([*ASK, "--stop", ""], "--stop"),
        ([*ASK, "--private", "2", "--threads", "0"], "threads"),
        ([*ASK, "--grace", "-1"], "grace"),
        ([*ASK, "--network", ""], "network"),
        ([*ASK, "--network", "n" * 65], "network"),
        (["models", "--bootstrap", ","], "empty"),
        (["models", "--bootstrap", "bad:port"], "HOST:PORT"),
        (["models", "--bootstrap", "127.0.0.1:0"], "port 0"),
        (["models", "--state-dir", ""], "empty"),
        (["demo", "--bootstrap", "127.0.0.1:1"], "network of its own"),
        (["demo", "--ask", " "], "empty"),
        (["plan", "--model", "demo", "--memory", "lots"], "150MiB"),
        (["plan", "--model", "demo", "--dtype", "int2"], "--dtype"),
        (["plan", "--model", "demo", "--device", "tpu"], "--device"),
        (["verify"], "MODEL"),
        (["verify", "demo", "--tokens", "0"], "tokens"),
        (["verify", "demo", "--threads", "0"], "threads"),
        (["verify", "demo", "--memory", "lots"], "150MiB"),
        (["verify", "demo", "--against-library"], "--dtype fp32"),
        (["verify", "demo", "--against-library", "--dtype", "bf16"], "--dtype fp32"),
        (["verify", ""], "is empty"),
        (["host", "--model", ""], "is empty"),
        (["plan", "--model", ""], "is empty"),
        (["bench", "--model", ""], "is empty"),
        (["serve", "--model", ""], "is empty"),
        (["doctor", "--model", ""], "is empty"),
        (["chat", "--model", ""], "is empty"),
        (["query", "--prompt", "hi", "--private", "2", "--private-model", ""], "is empty"),
        (["host", "--model", "demo", "--listen", ""], "is empty"),
        (["host", "--model", "demo", "--memory", ""], "150MiB"),
        (["sentinel", "--listen", ""], "is empty"),
        (["doctor", "--listen", ""], "is empty"),
        (["sentinel", "--bandwidth", ""], "150MiB"),
        (["models", "--allow", "a" * 300], "--allow"),
    ],
)
def test_what_cannot_work_is_refused_as_usage(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "plan":
        arguments = [*arguments, "--state-dir", str(tmp_path)]
    assert run(arguments) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["query", "chat", "host", "sentinel", "node", "models", "status", "plan", "demo", "verify"],
)
def test_help_is_printed_as_it_was_written(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Usage: diffuse" in told
    assert "\\b" not in told


class Answering:
    """A port that says one thing to whoever connects, or nothing at all."""

    def __init__(self, answer: bytes | None) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self._answer = answer
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self._held.append(connection)
                if self._answer is not None:
                    connection.recv(4096)
                    connection.sendall(self._answer)
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for connection in (self.listener, *self._held):
            connection.close()


@pytest.fixture
def html() -> Iterator[Answering]:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    port = Answering(page)
    yield port
    port.close()


@pytest.fixture
def mute() -> Iterator[Answering]:
    port = Answering(None)
    yield port
    port.close()


def test_a_bootstrap_that_answers_html_is_told(
    html: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", "--bootstrap", html.address]) == 5
    told = capsys.readouterr().err
    assert html.address in told
    assert "no Diffuse node" in told


def test_a_bootstrap_that_says_nothing_is_given_up(
    mute: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("diffuse_core.services.links.DIAL_TIMEOUT_S", 0.2)
    assert run(["models", "--bootstrap", mute.address]) == 5
    assert "no answer" in capsys.readouterr().err


def test_nobody_there_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    assert run(["query", "--bootstrap", address, *ASK[1:]]) == 5
    told = capsys.readouterr().err
    assert "nothing listens" in told
    assert "diffuse host" in told


def test_sizes_are_shown() -> None:
    assert size_text(150 * 2**20) == "150.0 MiB"
    assert size_text(3 * 2**30) == "3.0 GiB"


def test_addresses_are_read() -> None:
    assert parse_address("ws://10.0.0.1:80/") == ("10.0.0.1", 80)
    assert parse_address("[::1]:9") == ("::1", 9)
    assert parse_bootstrap(["a,b:7", "a"]) == ("a:9440", "b:7")
