"""Hosts of all kinds that a route may be chosen from."""

from __future__ import annotations

from domain_samples import ordered
from hypothesis import strategies as st

from diffuse_core.domain.router import Candidate
from diffuse_core.domain.slices import Slice


def some_candidates(
    total: int, *, most: int, farthest: float, slowest: float, busiest: int
) -> st.SearchStrategy[list[Candidate]]:
    """Lists of up to `most` candidates of a model of `total` layers; times in seconds."""
    rows = st.lists(
        st.tuples(
            st.integers(0, total - 1),
            st.integers(1, total),
            st.one_of(st.none(), st.floats(0.0001, farthest)),
            st.floats(0, slowest),
            st.integers(0, busiest),
        ),
        max_size=most,
    )
    return rows.map(
        lambda rows: [
            Candidate(
                node=ordered(number),
                slice=Slice(start, min(total, start + length)),
                rtt_s=rtt,
                step_s=step,
                sessions=sessions,
            )
            for number, (start, length, rtt, step, sessions) in enumerate(rows)
        ]
    )
