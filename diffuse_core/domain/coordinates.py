"""Network coordinates: points whose distances estimate round trips that nobody measured.

Vivaldi (Dabek, Cox, Kaashoek and Morris, "Vivaldi: a decentralized network coordinate system",
SIGCOMM 2004) as HashiCorp's Serf runs it: eight dimensions and a height, which is what a node's
own access line or relay adds to every path; an adjustment, the mean of what the space cannot
express (Lee, Guha and others, 2006); a median over a node's last samples against outliers;
gravity, so that the whole cloud does not drift away.

Others may lie about their coordinate, or hold their answers back. So what is read is bounded, and
one sample moves us by at most a quarter of the round trip that we measured ourselves; nobody is
taken for surer than ERROR_LEAST.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import deque
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

DIMENSIONS = 8
MAX_US = 10_000_000
"""No part of a coordinate is farther out than ten seconds."""
ERROR_SCALE = 64
MAX_ERROR = 1.5
ERROR_LEAST = 0.1
"""A floor under the error that a node claims: else one that says it has none would be believed
alone."""
MAX_RTT_S = 10.0
TRUST = 0.25
"""Vivaldi's c_c and c_e: the share of an error that one sample corrects."""
HEIGHT_LEAST_S = 10e-6
WINDOW = 20
MEDIAN_OF = 3
GRAVITY_S = 150.0
SETTLED = 10
"""Samples until a coordinate says anything."""
TINY_S = 1e-6
MOVE_LEAST_US = 5_000
MOVE_SHARE = 0.25
"""Of the distance from the origin: who is far away may be told of less exactly, and even less so
who is not sure where it is."""
USUAL = 4.0
"""A sample that is farther off than so many medians of the last ones moves us no more than that,
and whoever it is of is taken for unsure of its place."""

Axis = Annotated[int, msgspec.Meta(ge=-MAX_US, le=MAX_US)]
Height = Annotated[int, msgspec.Meta(ge=0, le=MAX_US)]
Error = Annotated[int, msgspec.Meta(ge=0, le=int(MAX_ERROR * ERROR_SCALE))]


class Coordinate(msgspec.Struct, frozen=True, array_like=True):
    """Where a node is, in microseconds; at most 48 bytes, as integers that are always finite.

    `height` has the adjustment in it, as far as the sum is not negative. `error` is how wrong the
    node's estimates are relative to what it measures, in 64ths.
    """

    axes: tuple[Axis, Axis, Axis, Axis, Axis, Axis, Axis, Axis]
    height: Height
    error: Error


def distance_s(one: Coordinate, other: Coordinate) -> float:
    """The round trip between two nodes in seconds, estimated."""
    # Heights first: the sum is the same from both ends, to the last bit.
    return (math.dist(one.axes, other.axes) + (one.height + other.height)) * 1e-6


def between_s(one: Coordinate | None, other: Coordinate | None) -> float | None:
    """The same where both are known."""
    return None if one is None or other is None else distance_s(one, other)


def moved(told: Coordinate | None, now: Coordinate | None) -> bool:
    """Whether a node's place is so far from what it told that others should know."""
    if told is None or now is None:
        return told is not now
    way = math.dist(told.axes, now.axes) + abs(told.height - now.height)
    share = max(MOVE_SHARE, now.error / ERROR_SCALE)
    return way > max(MOVE_LEAST_US, share * (math.hypot(*now.axes) + now.height))


class Position:
    """Our own place in the space, which the round trips that we measure pull at.

    Args:
        own: settles the direction in which we move apart from who is at the very same place.
    """

    def __init__(self, own: NodeId) -> None:
        mixed = hashlib.sha256(own).digest()[:DIMENSIONS]
        self._own_way = [byte - 127.5 for byte in mixed]
        self._told: Coordinate | None = None
        self._recent: dict[NodeId, tuple[float, ...]] = {}
        self._heard: dict[NodeId, Coordinate] = {}
        self._samples = 0
        self._axes = [0.0] * DIMENSIONS
        self._height = HEIGHT_LEAST_S
        self._error = MAX_ERROR
        self._residuals: list[float] = []
        self._off: deque[float] = deque(maxlen=WINDOW)
        self._adjustment = 0.0

    @property
    def coordinate(self) -> Coordinate | None:
        """Where we are; None before there were SETTLED samples."""
        if self._told is None and self._samples >= SETTLED:
            self._told = self._rounded()
        return self._told

    def _rounded(self) -> Coordinate:
        axes = [max(-MAX_US, min(MAX_US, round(axis * 1e6))) for axis in self._axes]
        return Coordinate(
            (axes[0], axes[1], axes[2], axes[3], axes[4], axes[5], axes[6], axes[7]),
            max(0, min(MAX_US, round((self._height + self._adjustment) * 1e6))),
            round(self._error * ERROR_SCALE),
        )

    def least_s(self, node: NodeId) -> float | None:
        """The shortest of the latest round trips to a node: neither end was busy then."""
        return min(self._recent.get(node, ()), default=None)

    def forget(self, node: NodeId) -> None:
        """Drop the samples of a node."""
        self._recent.pop(node, None)
        self._heard.pop(node, None)

    def heard(self, node: NodeId, place: Coordinate) -> None:
        """`node` says where it is, with the answer that a round trip is measured by."""
        self._heard[node] = place

    def measured(self, node: NodeId, rtt_s: float, other: Coordinate | None) -> None:
        """A round trip to `node`, whose record says that it is at `other`; None: it does not know.

        What was `heard` from it is later than any record. The first of a network know no place;
        they take each other for being at the origin.
        """
        if not 0.0 < rtt_s <= MAX_RTT_S:
            return
        other = self._heard.get(node, other)
        recent = (*self._recent.get(node, ())[1 - MEDIAN_OF :], rtt_s)
        self._recent[node] = recent
        self._samples += 1
        self._told = None
        rtt_s = max(TINY_S, statistics.median_low(recent))
        if other is None:
            axes, height, error = (0.0,) * DIMENSIONS, 0.0, MAX_ERROR
        else:
            axes = tuple(axis * 1e-6 for axis in other.axes)
            height, error = other.height * 1e-6, max(ERROR_LEAST, other.error / ERROR_SCALE)
        self._approach(axes, height, error, rtt_s)
        self._adjust(axes, height, rtt_s)
        self._fall()

    def _approach(
        self, axes: tuple[float, ...], height: float, error: float, rtt_s: float
    ) -> None:
        raw = math.dist(self._axes, axes) + self._height + height
        distance = raw + self._adjustment if raw + self._adjustment > 0 else raw
        off = rtt_s - distance
        usual = USUAL * statistics.median(self._off) if len(self._off) >= SETTLED else rtt_s
        self._off.append(abs(off))
        if abs(off) > usual:
            off, error = math.copysign(usual, off), MAX_ERROR
        weight = self._error / (self._error + error)
        pace = TRUST * weight
        wrong = min(MAX_ERROR, abs(off) / rtt_s)
        self._error = max(1 / ERROR_SCALE, pace * wrong + self._error * (1 - pace))
        self._push(axes, height, pace * off)

    def _push(self, axes: tuple[float, ...], height: float, force: float) -> None:
        """Move by `force` seconds away from a place; towards it when negative."""
        away = [mine - its for mine, its in zip(self._axes, axes, strict=True)]
        apart = math.hypot(*away)
        if apart <= TINY_S:
            away = self._own_way
            length = math.hypot(*away)
        else:
            length = apart
            grown = self._height + (self._height + height) * force / apart
            self._height = max(HEIGHT_LEAST_S, min(self._height + abs(force), grown))
        self._axes = [
            mine + part / length * force for mine, part in zip(self._axes, away, strict=True)
        ]

    def _adjust(self, axes: tuple[float, ...], height: float, rtt_s: float) -> None:
        raw = math.dist(self._axes, axes) + self._height + height
        usual = USUAL * statistics.median(self._off)
        residual = max(-usual, min(usual, rtt_s - raw))
        self._residuals = [*self._residuals[1 - WINDOW :], residual]
        self._adjustment = sum(self._residuals) / (2 * WINDOW)

    def _fall(self) -> None:
        """Gravity: a pull towards the origin that grows with the square of the distance."""
        far = math.hypot(*self._axes)
        if far > TINY_S:
            share = max(0.0, 1 - (far / GRAVITY_S) ** 2 / far)
            self._axes = [axis * share for axis in self._axes]
