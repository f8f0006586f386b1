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


def test_oversized_records_are_not_even_hashed(checked: list[SignedRecord]) -> None:
    assert Verdicts().read(SignedRecord(bytes(MAX_RECORD_BYTES + 1), bytes(64))) is None
    assert checked == []


def test_directories_may_share_them(checked: list[SignedRecord]) -> None:
    verdicts = Verdicts()
    for seed in range(2):
        Directory(random.Random(seed), verdicts=verdicts).admit(signed(1), 0.0)
    assert len(checked) == 1
