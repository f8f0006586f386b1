"""Buckets: two tables are equal when their summaries are, else differ where those do."""

from __future__ import annotations

from domain_samples import ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.buckets import SUMMARY_BYTES, Buckets, different, within
from diffuse_core.domain.identity import NodeId

tables = st.dictionaries(
    st.builds(
        lambda first, last: NodeId(bytes([first]) + bytes(30) + bytes([last])),
        st.sampled_from([0, 7, 255]),
        st.integers(0, 3),
    ),
    st.integers(0, 2**63 - 1) | st.integers(0, 2),
    max_size=8,
)


def _filled(table: dict[NodeId, int]) -> Buckets:
    buckets = Buckets()
    for node, sequence in table.items():
        buckets.put(node, sequence)
    return buckets


@settings(max_examples=100, derandomize=True)
@given(tables, tables)
def test_they_differ_exactly_in_the_buckets_whose_tables_do(
    one: dict[NodeId, int], two: dict[NodeId, int]
) -> None:
    first, second = _filled(one), _filled(two)
    expected = {node[0] for node, _ in one.items() ^ two.items()}
    assert set(different(first.summary(), second.summary())) == expected
    for node in one:
        first.discard(node)
    for node, sequence in two.items():
        first.put(node, sequence)
    assert first.summary() == second.summary()
    assert len(first.summary()) == SUMMARY_BYTES


def test_what_is_not_there_can_be_discarded() -> None:
    buckets = Buckets()
    before = buckets.summary()
    buckets.discard(ordered(3))
    assert buckets.summary() == before


def test_nodes_belong_to_the_bucket_of_their_first_byte() -> None:
    nodes = [ordered(1), ordered(2), ordered(3)]
    assert list(within(bytes([1, 3]), nodes)) == [ordered(1), ordered(3)]
    assert list(within(b"", nodes)) == nodes
