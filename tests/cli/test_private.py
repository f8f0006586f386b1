"""Options of private mode: what they ask for, and what they refuse by themselves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click
import pytest

from diffuse_core import wiring
from diffuse_core.cli import run
from diffuse_core.cli.asking_options import asked, asking
from diffuse_core.cli.private import own_layers
from diffuse_core.domain.view import ChatMessage
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GIVEN = {
    "model": "m",
    "private": 0,
    "private_tail": 0,
    "private_model": None,
    "threads": None,
}


class Layers:
    """Stands for layers of the client's own; keeps what it was made with."""

    def __init__(self, named: str | None, tell: Any, progress: Any, threads: int | None) -> None:
        self.named, self.tell, self.progress, self.threads = named, tell, progress, threads
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> list[Layers]:
    made: list[Layers] = []

    def make(*given: Any) -> Layers:
        made.append(Layers(*given))
        return made[-1]

    monkeypatch.setattr(wiring, "own_layers", make)
    return made


def test_options_become_a_request() -> None:
    @click.command()
    @asking
    def command(**given: Any) -> None:
        request = asked(given, "m", (ChatMessage("user", "hi"),))
        assert (request.private, request.private_tail) == (4, 2)

    arguments = ["--model", "m", "--private", "4", "--private-tail", "2"]
    command.main(arguments, standalone_mode=False)


@pytest.mark.parametrize("name", ["private_tail", "private_model", "threads"])
def test_they_go_with_private(layers: list[Layers], name: str) -> None:
    option = name.replace("_", "-")
    with (
        pytest.raises(UsageError, match=f"^--{option} goes with --private K"),
        own_layers({**GIVEN, name: 1}),
    ):
        pass
    assert layers == []


def test_without_them_nothing_runs_here(layers: list[Layers]) -> None:
    with own_layers(GIVEN) as found:
        assert found is None
    assert layers == []


def test_files_that_are_named_are_those_of_the_layers(
    layers: list[Layers], tmp_path: Path
) -> None:
    here = str(tmp_path)
    for given, named in [
        ({"model": "org/name"}, None),
        ({"model": here}, here),
        ({"model": "org/name", "private_model": "other"}, "other"),
        ({"model": here, "private_model": "other"}, "other"),
    ]:
        with own_layers({**GIVEN, "private": 2, **given}) as found:
            assert found is layers[-1]
            assert found.named == named
            assert not found.closed
        assert found.closed


def test_they_compute_with_as_many_threads_as_asked_for(layers: list[Layers]) -> None:
    with own_layers({**GIVEN, "private": 2, "threads": 1}):
        assert layers[-1].threads == 1


def test_progress_is_drawn_beside_the_answer(
    layers: list[Layers], capsys: pytest.CaptureFixture[str]
) -> None:
    with own_layers({**GIVEN, "private": 2}):
        layers[0].tell("private: layers 0:2\x1b[2J take 1 MiB")
        for what in ("getting m", "loading layers 0:2"):
            for fraction in (0.1, 0.5, 1.0):
                layers[0].progress(what, fraction)
    out, err = capsys.readouterr()
    assert out == ""
    assert "private: layers 0:2" in err
    assert "\x1b[2J" not in err


def test_a_query_gives_them_to_its_client(
    layers: list[Layers], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def observe(_: object, __: object, given: object) -> AsyncIterator[Any]:
        seen.append(given)
        raise UsageError("enough")
        yield

    monkeypatch.setattr(wiring, "observe", observe)
    asking = ["query", "--model", "m", "--prompt", "hi"]
    assert run([*asking, "--private", "3"]) == 2
    assert seen == layers
    assert layers[0].closed
    assert run(asking) == 2
    assert seen[1:] == [None]
