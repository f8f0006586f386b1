"""Which device a host takes, what it offers of it, and when torch is loaded to find out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from diffuse_core.errors import UsageError
from diffuse_core.services.devices import (
    PROCESS_RESERVE,
    can_compute,
    check_computed,
    choose_device,
    default_capacity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

RAM = 8 * 2**30


@dataclass
class FakeHardware:
    likely: bool = True
    bf16: bool = True

    def available_memory(self) -> int:
        return RAM

    def cores(self) -> int:
        return 6

    def fast_bf16(self) -> bool:
        return self.bf16

    def accelerator_likely(self) -> bool:
        return self.likely


def never() -> Mapping[str, int]:
    raise AssertionError("torch was loaded to look")


@pytest.mark.parametrize(
    ("found", "kind", "free"),
    [({"mps": 5, "cuda": 7}, "cuda", 7), ({"mps": 5}, "mps", 5), ({}, "cpu", RAM)],
)
def test_auto_takes_the_best_that_is_there(found: dict, kind: str, free: int) -> None:
    device = choose_device(None, None, FakeHardware(), lambda: found)
    assert (device.kind, device.free) == (kind, free)


@pytest.mark.parametrize(("asked", "likely"), [(None, False), ("cpu", True), ("cpu", False)])
def test_torch_is_not_loaded_where_there_is_nothing_to_find(
    asked: str | None, likely: bool
) -> None:
    assert choose_device(asked, None, FakeHardware(likely), never).kind == "cpu"


def test_a_device_that_is_asked_for_is_taken() -> None:
    device = choose_device("mps", None, FakeHardware(), lambda: {"cuda": 7, "mps": 5})
    assert (device.kind, device.free) == ("mps", 5)


@pytest.mark.parametrize(
    ("asked", "likely", "found", "there"),
    [
        ("cuda", False, None, "only cpu;"),
        ("cuda", True, {}, "only cpu;"),
        ("mps", True, {"cuda": 7}, "only cuda, cpu;"),
    ],
)
def test_a_device_that_is_not_there_is_refused_and_what_is_there_named(
    asked: str, likely: bool, found: dict | None, there: str
) -> None:
    look = never if found is None else lambda: found
    with pytest.raises(UsageError, match=f"--device {asked}: .* {there}"):
        choose_device(asked, None, FakeHardware(likely), look)


def test_a_gpu_multiplies_bf16_itself_and_a_cpu_where_it_says_so() -> None:
    slow = FakeHardware(bf16=False)
    assert choose_device(None, None, slow, lambda: {"cuda": 7}).fast_bf16
    assert not choose_device("cpu", None, slow, never).fast_bf16
    assert choose_device("cpu", None, FakeHardware(), never).fast_bf16


def test_threads_are_those_asked_for_else_one_for_each_core() -> None:
    assert choose_device("cpu", 3, FakeHardware(), never).threads == 3
    assert choose_device("cpu", None, FakeHardware(), never).threads == 6


def test_integer_weights_are_for_cpus() -> None:
    for contract in ("int8", "int4"):
        assert can_compute("cpu", contract)
        assert not can_compute("cuda", contract)
        with pytest.raises(UsageError, match=f"--dtype {contract} .* --device cpu"):
            check_computed("mps", contract)
    check_computed("cuda", "bf16")


def test_most_of_what_is_free_is_offered() -> None:
    assert default_capacity(PROCESS_RESERVE) == 0
    assert default_capacity(0) == 0
    assert 0 < default_capacity(4 * 2**30) < 3 * 2**30
