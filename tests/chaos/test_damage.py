"""What is done to disks and files is what is meant."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.chaos.damage import damage, fill, free, small_disk
from tests.chaos.scene import root_missing


@pytest.mark.skipif(bool(root_missing()), reason=root_missing() or "root")
def test_a_small_disk_holds_what_was_there_gets_full_and_leaves_what_was_written(
    tmp_path: Path,
) -> None:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    (place / "key").write_text("mine")
    with small_disk(place, 2**16):
        assert (place / "key").read_text() == "mine"
        fill(place)
        with pytest.raises(OSError, match="No space left"):
            (place / "more").write_bytes(bytes(2**13))
        free(place)
        (place / "more").write_text("there is room")
    assert sorted(path.name for path in place.iterdir()) == ["key", "more"]
    assert (place / "more").read_text() == "there is room"
    assert str(place) not in Path("/proc/mounts").read_text()


def test_only_tensors_are_damaged_and_each_seed_damages_the_same(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32"}}).encode()
    whole = struct.pack("<Q", len(header)) + header + bytes(50_000)
    found = []
    for number in range(2):
        path = tmp_path / f"{number}" / "model.safetensors"
        path.parent.mkdir()
        path.write_bytes(whole)
        assert damage(path.parent, 7) > 4096
        found.append(path.read_bytes())
    start = 8 + len(header)
    assert found[0] == found[1]
    assert len(found[0]) == len(whole)
    assert found[0][:start] == whole[:start]
    assert found[0] != whole
