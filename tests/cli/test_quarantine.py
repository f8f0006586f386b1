"""Commands that show and forget the nodes that audits found out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from diffuse_core import settings
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli import run
from diffuse_core.domain.identity import Identity
from diffuse_core.services.quarantine import QuarantineBook

if TYPE_CHECKING:
    from pathlib import Path

LIAR, DOUBTFUL, OTHER = (Identity(bytes([at]) * 32).node for at in (1, 2, 3))


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuarantineBook:
    monkeypatch.setattr(settings, "cache_dir", lambda: tmp_path)
    return QuarantineBook(FileStorage(tmp_path / "bundles"), SystemClock())


def test_nodes_are_listed_and_forgotten(
    book: QuarantineBook, capsys: pytest.CaptureFixture[str]
) -> None:
    book.bar(LIAR)
    book.doubt(DOUBTFUL, OTHER)
    assert run(["quarantine", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [LIAR.hex()[:8], "quarantined", "24.0", "h", "left"]
    assert [line.split()[1] for line in lines[1:]] == ["doubtful", "doubtful"]
    assert run(["quarantine", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["nodes"][0]["node"] == LIAR.hex()
    assert told["nodes"][0]["state"] == "quarantined"
    assert run(["quarantine", "clear"]) == 0
    assert capsys.readouterr().out == "forgot 3 nodes\n"
    assert book.entries() == []
    assert run(["quarantine", "list"]) == 0
    assert capsys.readouterr().out == "nobody is in quarantine\n"
    assert run(["quarantine", "clear"]) == 0
