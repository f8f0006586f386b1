"""Every target on its corpus, on changes to it, and on bytes of all sorts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.codec import encode
from diffuse_core.domain.messages import AnyMessage
from tests.fuzz.driver import fuzz
from tests.fuzz.registry import NAMES, Target
from tests.fuzz.script import script, steps
from tests.fuzz.valid_values import ValidValues
from tests.fuzz.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

RUNS = {"gossips": 60, "relay_service": 60, "reservation_service": 40, "circuit_pieces": 100}
"""Fewer than the usual of those that take a millisecond and more for an input."""
USUAL_RUNS = 300


@pytest.fixture(params=NAMES)
def target(request: pytest.FixtureRequest) -> Target:
    return Target(request.param)


def test_corpus_and_mutations_of_it_do_no_harm(target: Target, tmp_path: Path) -> None:
    runs = RUNS.get(target.name, USUAL_RUNS)
    # Other tests run in this process, whose garbage must not count; the long runs look closer.
    watch = Watch(target.run, hang_s=5.0, growth_bytes=2**30)
    figures = fuzz(target, runs=runs, seed=1, watch=watch, folder=tmp_path)
    assert figures.inputs == runs + len(target.inputs())


def test_every_sample_is_in_the_corpus(target: Target) -> None:
    """They were written by `python -m tests.fuzz all --write-samples`."""
    assert set(target.samples()) <= {path.name for path in target.corpus.glob("*")}


@given(data=st.binary(max_size=200))
@settings(max_examples=20, derandomize=True, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_no_sense_do_no_harm(name: str, data: bytes) -> None:
    Target(name).run(data)


@given(seed=st.integers(0, 2**32), at=st.integers(0, 2**16), bit=st.integers(0, 7))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_any_message_with_any_bit_flipped_does_no_harm(seed: int, at: int, bit: int) -> None:
    rng = random.Random(seed)
    frame = bytearray(encode(ValidValues(rng, 3).make(rng.choice(AnyMessage.__args__))))
    frames = Target("frames")
    assert frames.run(bytes(frame)) != "malformed"
    frame[at % len(frame)] ^= 1 << bit
    frames.run(bytes(frame))


def test_samples_get_far() -> None:
    """Of every kind of message, every step of a handshake and so on one is let through."""

    def outcomes(name: str) -> set[str]:
        target = Target(name)
        return {target.run(data) for data in target.samples().values()}

    assert outcomes("frames") >= {kind.__struct_config__.tag for kind in AnyMessage.__args__}
    passed = {f"{how} {step}: let in" for how in ("raw", "sealed") for step in range(3)}
    assert outcomes("handshakes") >= passed
    assert outcomes("records") >= {"host", "client", "sentinel", "farewell"}
    assert outcomes("sealed_stream") >= {"frame", "long frame", "farewell", "replayed"}
    assert "opened" in outcomes("bundles")
    assert "message" in outcomes("circuit_pieces")
    assert "1 reservations, 1 circuits" in outcomes("relay_service")
    assert "2 held, 1 relayed" in outcomes("reservation_service")
    assert "2 held, 0 relayed" in outcomes("reservation_service")
    assert outcomes("model_files") >= {"gguf with 2 tensors", "safetensors with 2 tensors"}
    assert {one.partition(",")[0] for one in outcomes("dial_backs")} >= {"1 reached", "0 reached"}


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=9))
def test_a_script_is_read_as_it_was_written(written: list[tuple[int, bytes]]) -> None:
    assert list(steps(script(*written))) == written
