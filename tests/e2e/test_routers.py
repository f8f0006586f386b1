"""The homes of these tests let their machines dial out, and nobody in; nothing of them stays."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.namespaces import namespaces_missing
from tests.e2e.routers import Neighbourhood

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.routers import Refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PORT = 9440
ANSWER = f"""
import socket
at = socket.create_server(("0.0.0.0", {PORT}))
print("listens", flush=True)
while True:
    there, _ = at.accept()
    there.sendall(there.recv(9)[::-1])
    there.close()
"""
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as there:
        there.sendall(b"hello")
        print(there.recv(9).decode())
except TimeoutError:
    print("silence")
except OSError:
    print("refused")
"""
WHERE: dict[str, Refusal] = {"stern": "prohibit", "silent": "blackhole"}


@pytest.fixture
def around() -> Iterator[Neighbourhood]:
    if reason := namespaces_missing():
        pytest.skip(reason)
    with Neighbourhood("out", "more", homes=WHERE) as around:
        yield around


@contextlib.contextmanager
def answering(around: Neighbourhood, *names: str) -> Iterator[None]:
    """A plain server in each of the namespaces."""
    with contextlib.ExitStack() as stack:
        for name in names:
            command = [*around.within(name), sys.executable, "-c", ANSWER]
            server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(server.kill)
            assert server.stdout is not None
            assert server.stdout.readline() == b"listens\n"
        yield


def ask(around: Neighbourhood, source: str, target: str) -> str:
    """What comes of dialling one machine from another."""
    command = [*around.within(source), sys.executable, "-c", ASK, around.address(target)]
    done = subprocess.run([*command, str(PORT)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_homes_dial_out_and_are_not_dialled(around: Neighbourhood) -> None:
    with answering(around, "out", *WHERE):
        for home in WHERE:
            assert ask(around, home, "out") == "olleh"
            assert ask(around, home, home) == "olleh"
        for outside in ("out", "more"):
            assert ask(around, outside, "stern") == "refused"
            assert ask(around, outside, "silent") == "silence"
        assert ask(around, "silent", "stern") == "refused"
        assert ask(around, "stern", "silent") == "silence"


def test_a_home_whose_owner_opens_it_is_dialled(around: Neighbourhood) -> None:
    with answering(around, "stern"):
        around.open("stern")
        for name in ("out", "more", "silent"):
            assert ask(around, name, "stern") == "olleh"


def test_nothing_is_left_behind() -> None:
    if reason := namespaces_missing():
        pytest.skip(reason)

    def namespaces() -> str:
        words = ["ip", "netns", "list"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with Neighbourhood("out", homes=WHERE) as around:
        tag = around.within("out")[-1].removesuffix("-out")
        assert namespaces().count(f"{tag}-") == 6
    assert tag not in namespaces()
