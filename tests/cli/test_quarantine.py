"""Commands that show and forget the nodes that audits found out."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core import wiring
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.adapters.system_clock import SystemClock
from diffuse_core.cli import run
from diffuse_core.cli.quarantine_text import quarantine_lines
from diffuse_core.domain.identity import Identity
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ModelView, NetworkView, NodeView
from diffuse_core.services.quarantine import QuarantineBook, marked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIAR, DOUBTFUL, OTHER = (Identity(bytes([at]) * 32).node for at in (1, 2, 3))
SHORT = LIAR.hex()[:8]


@pytest.fixture
def state(tmp_path: Path) -> list[str]:
    return ["--state-dir", str(tmp_path / "state")]


@pytest.fixture
def book(state: list[str]) -> QuarantineBook:
    return QuarantineBook(FileStorage(wiring.state_dir(state[1])), SystemClock())


def test_nodes_are_listed_and_forgotten(
    book: QuarantineBook, state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    book.bar(LIAR)
    book.doubt(DOUBTFUL, OTHER)
    assert run(["quarantine", "list", *state]) == 0
    lines = sorted(capsys.readouterr().out.splitlines(), key=lambda line: "doubtful" in line)
    assert lines[0].split() == [SHORT, "⊘", "quarantined", "24.0", "h", "left"]
    assert [line.split()[1:3] for line in lines[1:]] == [["◌", "doubtful"]] * 2
    assert run(["quarantine", "list", "--json", *state]) == 0
    told = {one["node"]: one for one in json.loads(capsys.readouterr().out)["nodes"]}
    assert told[LIAR.hex()]["state"] == "quarantined"
    assert told[OTHER.hex()]["state"] == "doubtful"
    assert told[LIAR.hex()]["until"] == pytest.approx(SystemClock().wall() + 86400, abs=60)
    assert run(["quarantine", "clear", *state]) == 0
    assert capsys.readouterr().out == "forgot 3 nodes\n"
    assert book.entries() == []
    assert run(["quarantine", "list", *state]) == 0
    assert capsys.readouterr().out == "nobody is in quarantine\n"
    assert run(["quarantine", "clear", *state]) == 0


def test_each_state_directory_has_its_own(
    book: QuarantineBook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book.bar(LIAR)
    assert run(["quarantine", "list", "--state-dir", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out == "nobody is in quarantine\n"


def test_a_list_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    book = QuarantineBook(FileStorage(tmp_path / "file"), SystemClock())
    book.bar(LIAR)
    assert book.barred() == set()


# --- beside the network -----------------------------------------------------------------


def node(who: bytes, part: Slice, **more: Any) -> NodeView:
    given = {"liveness": "alive", "state": "ready", "model": "demo", "fingerprint": "f" * 64}
    return NodeView(
        node=who.hex(),
        short=who.hex()[:8],
        role="host",
        last_seen_s=0.0,
        version="1",
        contract="int4",
        slice=part,
        **(given | more),
    )


def picture(*nodes: NodeView) -> NetworkView:
    model = ModelView(
        id="demo",
        fingerprint="f" * 64,
        contract="int4",
        layers=8,
        context=2048,
        state="Fragile",
        servable=True,
        missing=(),
        replicas=(1,) * 8,
        min_replicas=1,
        target_replicas=2,
        hosts=len(nodes),
    )
    return NetworkView(taken_at=0.0, me=None, nodes=nodes, models=(model,))


BOTH = picture(node(LIAR, Slice(0, 4)), node(OTHER, Slice(4, 8)))


def lines(view: NetworkView, **states: Any) -> str:
    named = {who.hex(): states[name] for name, who in WHO.items() if name in states}
    shown = marked(view, named)
    return " ".join(line.strip() for line in quarantine_lines(shown, shown.models))


WHO = {"liar": LIAR, "other": OTHER, "doubtful": DOUBTFUL}


def test_what_nobody_else_holds_is_named() -> None:
    assert lines(BOTH) == ""
    told = lines(BOTH, liar="quarantined")
    assert told.startswith(f"⊘ quarantined here by audits, not used for demo: {SHORT} (0:4);")
    assert "nobody else holds 0:4: it cannot be asked from here" in told
    spare = picture(*BOTH.nodes, node(DOUBTFUL, Slice(0, 6)))
    assert "nobody else" not in lines(spare, liar="quarantined", doubtful="doubtful")
    assert "nobody else holds 0:4" in lines(spare, liar="quarantined", doubtful="quarantined")


def test_who_holds_nothing_or_is_gone_is_not_told_of() -> None:
    gone = picture(node(LIAR, Slice(0, 4), liveness="dead"))
    assert lines(gone, liar="quarantined") == ""
    other = picture(node(LIAR, Slice(0, 4), fingerprint="0" * 64))
    assert lines(other, liar="quarantined") == ""
    assert "◌ doubtful since an audit" in lines(BOTH, liar="doubtful")


@pytest.fixture
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    class Observer:
        def view(self) -> NetworkView:
            return BOTH

    @asynccontextmanager
    async def observe(*_: object) -> AsyncIterator[tuple[Observer, None]]:
        yield Observer(), None

    monkeypatch.setattr(wiring, "observe", observe)


@pytest.mark.usefixtures("_network")
def test_a_look_at_the_network_shows_them(
    book: QuarantineBook, state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", *state]) == 0
    assert "quarantine" not in capsys.readouterr().out
    book.bar(LIAR)
    assert run(["models", *state]) == 0
    assert f"{SHORT} (0:4)" in capsys.readouterr().out
    assert run(["models", "--json", *state]) == 0
    (told,) = json.loads(capsys.readouterr().out)["quarantine"]
    assert (told["node"], told["state"], told["slice"]) == (LIAR.hex(), "quarantined", [0, 4])
    assert run(["status", *state]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(SHORT)]
    assert "ready ⊘ quarantined" in rows[-1]
    assert run(["status", "--json", *state]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [one["quarantine"] for one in nodes] == ["quarantined", None]
