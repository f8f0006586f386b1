"""The router: the cheapest Route through the Hosts that hold a model.

What a token costs: at each Stage the wait for its turn and the compute of its layers, and the
hops between them, that from the last Stage back to the first as well, for the tokens go round a
ring. The Client's own link counts once for an answer. Slices compose as they overlap, and a Stage
may be any part of a Slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.candidates import Candidate, candidate_of, tolls
from diffuse_core.domain.coverage import missing_text
from diffuse_core.domain.messages import MAX_STAGES
from diffuse_core.domain.path_search import Path, PathSearch
from diffuse_core.domain.shortlist import FEW, shortlists
from diffuse_core.domain.slices import Slice, gaps
from diffuse_core.errors import ModelIncomplete

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence, Set

    from diffuse_core.domain.identity import NodeId

    Stages = tuple[tuple[NodeId, Slice], ...]

__all__ = ["Candidate", "candidate_of", "choose_route", "refill_route"]

MAX_FIRSTS = 6
"""So many Hosts of a shortlist are tried as the first of the ring, the best ones."""


def choose_route(
    total: int,
    candidates: Sequence[Candidate],
    avoid: Set[NodeId],
    rng: random.Random,
    *,
    first: int = 0,
    last: int | None = None,
    before: NodeId | None = None,
    after: NodeId | None = None,
    asker: NodeId | None = None,
) -> Stages:
    """The Stages, in order, covering the layers first:last exactly once; no node appears twice.

    Args:
        total: layers of the model.
        candidates: live, ready Hosts of it; equal inputs and rng state give an equal Route.
        avoid: nodes that failed lately or have a Stage already, never chosen.
        rng: spreads the load over Hosts of about equal cost.
        first: the first layer that is to be covered.
        last: the layer after the last one, `total` when None.
        before: the Stage that hands over to these on the ring, never chosen. Its place is that of
            the candidate that it is; so it is with `after`.
        after: the Stage that these hand over to. Neither is given for a whole ring.
        asker: the node whose round trips the candidates' `rtt_s` are, where it is a node.

    Raises:
        ModelIncomplete: some range is held by none of the candidates; it is named.
    """
    end = total if last is None else last
    usable = _usable(total, candidates, {*avoid, before, after}, first, end)
    costs = tolls(usable, rng)
    known = {one.node: one for one in candidates if one.node in (before, after)}
    ends = tuple(None if node is None else known.get(node) for node in (before, after))
    near = [one for one in ends if one is not None]
    best: Path | None = None
    for hosts in shortlists(usable, first, end, costs, near, asker, rng):
        search = PathSearch(hosts, first, end, costs, asker)
        whole = before is None and after is None and (first, end) == (0, total)
        for path in _rings(search) if whole else _ways(search, *ends):
            if best is None or path.cost < best.cost:
                best = path
    assert best is not None  # noqa: S101  (all layers are held)
    return _bounded(tuple((one.node, part) for one, part in best.stages))


def refill_route(
    total: int,
    candidates: Sequence[Candidate],
    avoid: Set[NodeId],
    rng: random.Random,
    kept: Sequence[tuple[NodeId, Slice]],
    *,
    asker: NodeId | None = None,
) -> Stages:
    """The whole Route when Stages of it were lost: those that are left keep their parts.

    Where none was lost they are the Route.

    Args:
        total: layers of the model.
        candidates: as for `choose_route`; those that are left are among them.
        avoid: nodes that are not to be taken.
        rng: as for `choose_route`.
        kept: the Stages that are left, in order.
        asker: as for `choose_route`.

    Raises:
        ModelIncomplete: some lost range cannot be filled by nodes that have no Stage yet.
    """
    if not kept:
        return choose_route(total, candidates, avoid, rng, asker=asker)
    lost = list(gaps(total, (part for _, part in kept)))
    if not lost:
        return tuple(kept)
    for _ in range(len(lost)):
        stages = {part: node for node, part in kept}
        for gap in lost:
            before, after = _neighbours(gap, stages, total)
            try:
                found = choose_route(
                    total,
                    candidates,
                    {*avoid, *stages.values()},
                    rng,
                    first=gap.start,
                    last=gap.end,
                    before=before,
                    after=after,
                    asker=asker,
                )
            except ModelIncomplete:
                if gap == lost[0]:
                    raise
                # Another range took the only Host that it can have: let it choose first.
                lost = [gap, *(one for one in lost if one != gap)]
                break
            stages |= {part: node for node, part in found}
        else:
            return _bounded(tuple((stages[part], part) for part in sorted(stages, key=_by_start)))
    raise ModelIncomplete(
        f"layers {', '.join(map(str, lost))} of {total} need more hosts than there are left; "
        "add a host or try again later"
    )


def _usable(
    total: int,
    candidates: Sequence[Candidate],
    barred: Set[NodeId | None],
    first: int,
    last: int,
) -> list[Candidate]:
    """Those that may be taken, in order of their ids; together they hold all the layers."""
    usable = sorted(
        (
            one
            for one in candidates
            if one.node not in barred and one.slice.start < last and first < one.slice.end <= total
        ),
        key=_by_node,
    )
    held = [one.slice for one in usable]
    outside = [Slice(*edges) for edges in ((0, first), (last, total)) if edges[0] < edges[1]]
    if missing := gaps(total, [*held, *outside]):
        raise ModelIncomplete(f"{missing_text(total, missing)}; add a host or try again later")
    return usable


def _by_node(candidate: Candidate) -> bytes:
    return candidate.node


def _by_start(part: Slice) -> int:
    return part.start


def _rings(search: PathSearch) -> Iterator[Path]:
    """The cheapest ring for each of some first Hosts."""
    firsts = search.firsts()
    if len(search.hosts) > FEW:
        del firsts[MAX_FIRSTS:]
    for start in firsts:

        def finish(host: int, start: int = start) -> float:
            client_s = search.hosts[host].client_s()
            return client_s + (0.0 if host == start else search.hop(host, start))

        path = search.cheapest([(start, search.hosts[start].client_s())], finish)
        if path is not None:
            yield path


def _ways(search: PathSearch, before: Candidate | None, after: Candidate | None) -> Iterator[Path]:
    """The cheapest way from one Stage of a ring to another; unknown ones cost nothing."""
    begins = [
        (host, 0.0 if before is None else search.from_outside(before, host))
        for host in search.firsts()
    ]

    def finish(host: int) -> float:
        return 0.0 if after is None else search.to_outside(host, after)

    path = search.cheapest(begins, finish)
    if path is not None:
        yield path


def _neighbours(
    gap: Slice, stages: dict[Slice, NodeId], total: int
) -> tuple[NodeId | None, NodeId | None]:
    """The Stages before and after a range on the ring; None where that is lost as well."""
    starts = {part.start: node for part, node in stages.items()}
    ends = {part.end: node for part, node in stages.items()}
    return ends.get(gap.start or total), starts.get(gap.end % total)


def _bounded(stages: Stages) -> Stages:
    if len(stages) > MAX_STAGES:
        raise ModelIncomplete(
            f"the model is split over {len(stages)} hosts in a row, more than the {MAX_STAGES} "
            "that a route may have; add a host that holds more layers"
        )
    return stages
