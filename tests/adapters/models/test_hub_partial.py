"""A file of which parts are here: what its journal says is there, is there."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models import hub_partial
from diffuse_core.adapters.models.hub_partial import PartialFile
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = bytes(range(256)) * 40
SIZE = len(CONTENT)
TAG = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def fresh(path: Path) -> PartialFile:
    part = PartialFile(path)
    part.promise(SIZE, TAG)
    return part


def put(path: Path, *ranges: tuple[int, int]) -> None:
    with fresh(path).opened() as write:
        for start, end in ranges:
            write(start, CONTENT[start:end])


def test_parts_are_remembered(path: Path) -> None:
    put(path, (100, 200), (5000, 6000))
    put(path, (200, 300))
    again = PartialFile(path)
    assert (again.size, again.tag, again.proven) == (SIZE, TAG, False)
    assert again.missing([(0, SIZE)]) == [(0, 100), (300, 5000), (6000, SIZE)]
    data = path.read_bytes()
    assert len(data) == SIZE
    assert data[100:300] == CONTENT[100:300]
    assert data[300:5000] == bytes(4700)


def test_what_is_written_when_it_is_broken_off_is_kept(path: Path) -> None:
    def broken_off() -> None:
        with fresh(path).opened() as write:
            write(0, CONTENT[:50])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert PartialFile(path).missing([(0, 60)]) == [(50, 60)]


def test_bytes_are_on_the_disk_before_the_journal_speaks_of_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_partial, "SAVE_BYTES", 1000)
    steps: list[str] = []
    sync, replace = os.fsync, type(path).replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(
        type(path), "replace", lambda a, b: (steps.append("journal"), replace(a, b))[1]
    )
    with fresh(path).opened() as write:
        write(0, CONTENT[:999])
        assert steps == []
        write(999, CONTENT[999:1200])
        # The data, the new journal's own bytes, its place, and that place's directory.
        assert steps == ["sync", "sync", "journal", "sync"]


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_torn_journal_claims_nothing(path: Path, cut: int) -> None:
    put(path, (0, 1000))
    journal = path.with_name(path.name + ".parts")
    journal.write_bytes(journal.read_bytes()[:cut])
    assert not PartialFile(path).known
    assert fresh(path).missing([(0, 1000)]) == [(0, 1000)]
    put(path, (0, 500))
    assert PartialFile(path).missing([(0, 1000)]) == [(500, 1000)]


@pytest.mark.parametrize(
    "text",
    [
        '{"size": 10240, "tag": "x", "ranges": [[-5, 10]]}',
        '{"size": 10240, "tag": "x", "ranges": [[0, 99999]]}',
        '{"size": 9, "tag": "x", "ranges": []}',
        '{"size": 10240, "tag": "x"}',
    ],
)
def test_a_journal_that_lies_claims_nothing(path: Path, text: str) -> None:
    put(path, (0, 1000))
    path.with_name(path.name + ".parts").write_text(text)
    assert not PartialFile(path).known


def test_a_journal_without_its_file_claims_nothing(path: Path) -> None:
    put(path, (0, 1000))
    path.unlink()
    assert not PartialFile(path).known
    put(path, (0, 1000))
    path.write_bytes(CONTENT[:1000])
    assert fresh(path).missing([(0, 1000)]) == [(0, 1000)]


def test_another_content_under_the_same_name_is_refused(path: Path) -> None:
    put(path, (0, 1000))
    for size, tag in ((SIZE + 1, TAG), (SIZE, "other")):
        with pytest.raises(ModelUnusable, match=r"changed model\.safetensors under the same"):
            PartialFile(path).promise(size, tag)


def test_nothing_is_written_through_a_link(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(bytes(SIZE))
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), fresh(path).opened():
        pass
    assert victim.read_bytes() == bytes(SIZE)


def test_a_whole_file_is_proven_once(path: Path) -> None:
    put(path, (0, SIZE))
    part = PartialFile(path)
    assert part.prove(lambda: None)
    assert PartialFile(path).proven
    damaged = bytearray(CONTENT)
    damaged[77] ^= 1
    path.write_bytes(damaged)
    assert not PartialFile(path).prove(lambda: None)
    part.discard()
    assert list(path.parent.iterdir()) == []
