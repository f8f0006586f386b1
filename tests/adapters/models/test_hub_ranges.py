"""Ranges, names of models on the hub, and transfers side by side."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models.hub_name import HubName, gguf_of_hub, parse_hub_name
from diffuse_core.adapters.models.hub_parallel import gathered
from diffuse_core.adapters.models.hub_ranges import cut, joined, missing, size_of

if TYPE_CHECKING:
    from collections.abc import Generator


def quiet() -> None:
    pass


def test_ranges_do_what_sets_of_bytes_do() -> None:
    rng = random.Random(5)
    for _ in range(300):
        wanted = [tuple(sorted(rng.choices(range(60), k=2))) for _ in range(rng.randint(0, 6))]
        here = [tuple(sorted(rng.choices(range(60), k=2))) for _ in range(rng.randint(0, 6))]
        present = joined(here)
        lacking = missing(wanted, present)
        assert lacking == joined(lacking)
        as_set = {b for start, end in lacking for b in range(start, end)}
        everything = {b for start, end in wanted for b in range(start, end)}
        assert as_set == everything - {b for start, end in here for b in range(start, end)}
        assert size_of(lacking) == len(as_set)
        most = rng.randint(1, 9)
        pieces = list(cut(lacking, most))
        assert joined(pieces) == lacking
        assert all(0 < end - start <= most for start, end in pieces)


def test_ranges_that_are_close_become_one() -> None:
    assert joined([(30, 40), (0, 10), (12, 20)], gap=2) == [(0, 20), (30, 40)]
    assert joined([(0, 0), (5, 3)]) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", HubName("HuggingFaceTB/SmolLM2-135M-Instruct")),
        ("gpt2", HubName("gpt2")),
        ("org/name@main", HubName("org/name", "main")),
        ("org/name@refs/pr/3", HubName("org/name", "refs/pr/3")),
        ("org/name@v1.0", HubName("org/name", "v1.0")),
        ("./org/name", None),
        ("~/name", None),
        ("/abs/name", None),
        ("a/b/c", None),
        ("org\\name", None),
        ("org/..", None),
        ("org/na..me", None),
        ("org/na--me", None),
        ("org/name@../x", None),
        ("org/name@", None),
        ("-org/name", None),
        ("org/name.", None),
        ("model.gguf", None),
        ("org/model.safetensors", None),
        ("name\n", None),
        ("nämé", None),
        ("", None),
        ("x" * 97, None),
        ("x" * 90 + "/" + "y" * 90, None),
    ],
)
def test_names(text: str, name: HubName | None) -> None:
    assert parse_hub_name(text) == name
    if name is not None:
        assert str(name) == text


def test_a_file_of_the_hub_is_seen_as_such() -> None:
    assert gguf_of_hub("org/name/sub/m.Q4_1.gguf") == ("org/name", "sub/m.Q4_1.gguf")
    assert gguf_of_hub("org/name/../m.gguf") is None
    assert gguf_of_hub("./name/m.gguf") is None


def test_jobs_run_side_by_side_and_all_they_bring_arrives() -> None:
    together = threading.Barrier(3, timeout=10)

    def job(number: int) -> object:
        def run(_stopped: threading.Event) -> Generator[int, None, None]:
            if number < 3:
                together.wait()
            for step in range(20):
                yield 100 * number + step

        return run

    found = list(gathered([job(n) for n in range(5)], 3, quiet))
    assert sorted(found) == [100 * n + step for n in range(5) for step in range(20)]


def test_the_first_failure_ends_it() -> None:
    def bad(_stopped: threading.Event) -> Generator[int, None, None]:
        yield 1
        raise IndexError("broken")

    with pytest.raises(IndexError, match="broken"):
        list(gathered([bad], 2, quiet))


def test_it_can_be_broken_off_while_a_job_hangs() -> None:
    ended = threading.Event()

    def hanging(stopped: threading.Event) -> Generator[int, None, None]:
        assert stopped.wait(10)
        ended.set()
        yield 1

    def idle() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(gathered([hanging], 2, idle))
    assert ended.wait(10)


def test_a_job_that_nobody_waits_for_is_told_and_closed() -> None:
    closed = threading.Event()

    def endless(_stopped: threading.Event) -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    bits = gathered([endless], 1, quiet)
    assert next(bits) == 1
    bits.close()
    assert closed.wait(10)
