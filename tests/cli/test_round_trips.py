"""The table of nodes tells round trips: those measured, and about how long others are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.cli.look import _print_view
from diffuse_core.domain.view import NetworkView, NodeView

if TYPE_CHECKING:
    import pytest


def _node(number: int, **changes: float) -> NodeView:
    name = f"{number:064x}"
    return NodeView(
        node=name,
        short=name[:8],
        role="host",
        liveness="alive",
        last_seen_s=1.0,
        version="0",
        **changes,
    )


def test_what_was_measured_counts_more_than_what_is_estimated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = (_node(1, rtt_s=0.0125, distance_s=0.2), _node(2, distance_s=0.0314), _node(3))
    _print_view(NetworkView(taken_at=0.0, me="a", nodes=nodes, models=()))
    head, *rows = capsys.readouterr().out.strip().splitlines()
    at = head.index("RTT")
    assert [row[at : at + 8].strip() for row in rows] == ["12.5 ms", "~31 ms", "-"]
