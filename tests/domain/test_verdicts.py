"""Verdicts: a content is checked once, and only so many are remembered."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from domain_samples import signed

from diffuse_core.domain import verdicts as module
from diffuse_core.domain.directory import Directory
from diffuse_core.domain.records import MAX_RECORD_BYTES, SignedRecord
from diffuse_core.domain.verdicts import Verdicts

if TYPE_CHECKING:
    from diffuse_core.domain.records import Record


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[SignedRecord]:
    calls: list[SignedRecord] = []
    real = module.open_record

    def counted(signed: SignedRecord) -> Record | None:
        calls.append(signed)
        return real(signed)

    monkeypatch.setattr(module, "open_record", counted)
    return calls


def test_a_record_is_verified_once(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts()
    for _ in range(3):
        assert verdicts.read(signed(1)) is not None
        assert verdicts.read(SignedRecord(b"junk", bytes(64))) is None
    assert len(checked) == 2


def test_verdicts_are_bounded(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts(3)
    for number in (1, 2, 3, 1, 4, 1, 2):
        verdicts.read(signed(number))
    assert len(verdicts) == 3
    assert len(checked) == 5


def test_of_one_node_few_are_kept_however_often_it_signs(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts()
    verdicts.read(signed(2))
    for sequence in range(1, 100):
        verdicts.read(signed(1, sequence))
    assert len(verdicts) == module.OF_ONE + 1
    before = len(checked)
    assert verdicts.read(signed(1, 99)) is not None
    assert verdicts.read(signed(2)) is not None
    assert len(checked) == before
    assert verdicts.read(signed(1, 1)) is not None
    assert len(checked) == before + 1


def test_of_what_is_not_sound_little_is_kept(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts()
    for number in range(module.UNSOUND + 10):
        assert verdicts.read(SignedRecord(str(number).encode(), bytes(64))) is None
    assert len(verdicts) == module.UNSOUND


def test_what_is_forgotten_leaves_nothing_behind() -> None:
    verdicts = Verdicts(2)
    for number in (1, 2, 3, 4):
        verdicts.read(signed(number, 1))
        verdicts.read(signed(number, 2))
    assert len(verdicts) == 2
    assert list(map(len, verdicts._keys.values())) == [2]


def test_oversized_records_are_not_even_hashed(checked: list[SignedRecord]) -> None:
    assert Verdicts().read(SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64))) is None
    assert checked == []


def test_directories_may_share_them(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts()
    for seed in range(2):
        Directory(random.Random(seed), verdicts=verdicts).admit(signed(1), 0.0)
    assert len(checked) == 1
