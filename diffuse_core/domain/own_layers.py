"""Private mode: the layers that a Client runs itself, what they take, and what cannot go with it.

With the first layers at the Client the ids of the prompt stay there; with the last ones and the
head as well, so do those of the answer. What passes on are hidden states, and how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.domain.session_memory import Wishes, session_bytes
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffuse_core.domain.decoding import SamplingParams
    from diffuse_core.domain.shapes import Contract, ModelShape

MIB = 2**20
OWN = Wishes(penalties=True, timed=True)
"""What answers may ask for here without more being reserved for them."""


@dataclass(frozen=True)
class OwnNeed:
    """Bytes that own layers take: `weights`, and `kv` for a number of positions.

    What the first layers give to the next Stage is kept as long as the Session; it is in `kv`.
    """

    weights: int
    kv: int

    @property
    def total(self) -> int:
        """Both."""
        return self.weights + self.kv


def own_parts(layers: int, first: int, last: int) -> tuple[Slice, ...]:
    """The parts of a model that stay with the Client: the first layers, then the last ones.

    Raises:
        UsageError: the last ones without the first, or nothing is left for Hosts.
    """
    if first < 1:
        raise UsageError(
            "--private-tail keeps the answer's ids here, and needs --private K for the prompt's"
        )
    if first + last >= layers:
        most = layers - 1 - last
        advice = f"at most --private {most}" if most > 0 else "less of --private-tail"
        raise UsageError(
            f"--private {first}{f' --private-tail {last}' if last else ''} leaves none of the "
            f"model's {layers} layers to the network; use {advice}"
        )
    head = Slice(0, first)
    return (head, Slice(layers - last, layers)) if last else (head,)


def check_drawing(sampling: SamplingParams, *, tail: bool) -> None:
    """See that drawing tokens needs no ids that are not to leave.

    Raises:
        UsageError: a stranger draws, and a penalty looks at tokens of prompt or answer.
    """
    if tail:
        return
    penalties = {
        "--repetition-penalty": sampling.repetition_penalty != 1.0,
        "--presence-penalty": sampling.presence_penalty != 0.0,
        "--frequency-penalty": sampling.frequency_penalty != 0.0,
    }
    names = [name for name, is_set in penalties.items() if is_set]
    if names:
        raise UsageError(
            f"{', '.join(names)}: the host that draws would have to know which tokens came "
            "before; with private mode add --private-tail 1, so that they are drawn here, or "
            "leave it out"
        )


def own_need(shape: ModelShape, contract: Contract, parts: Sequence[Slice], rows: int) -> OwnNeed:
    """What `parts` take for a Session of `rows` positions."""
    return OwnNeed(
        sum(shape.weight_bytes(part) for part in parts),
        sum(session_bytes(shape, contract, part, rows, OWN) for part in parts) if rows else 0,
    )


def kv_rooms(
    shape: ModelShape, contract: Contract, parts: Sequence[Slice], room: int
) -> tuple[int, ...]:
    """How `room` bytes for Sessions are shared: the longest one there is room for fits into each.

    What is left over is shared in the same way.
    """
    least, beyond = 1, shape.context + 1
    while beyond - least > 1:
        rows = (least + beyond) // 2
        fits = own_need(shape, contract, parts, rows).kv <= room
        least, beyond = (rows, beyond) if fits else (least, rows)
    shares = [session_bytes(shape, contract, part, least, OWN) for part in parts]
    return tuple(room * share // sum(shares) for share in shares)


def check_room(
    shape: ModelShape, contract: Contract, parts: Sequence[Slice], rows: int, room: int
) -> None:
    """See that own layers fit into `room` bytes.

    Raises:
        UsageError: they do not; it names the most of them that would.
    """
    need = own_need(shape, contract, parts, rows)
    if need.total <= room:
        return
    asked = " and ".join(map(str, parts))
    fitting = next(
        (
            smaller
            for smaller in _smaller(shape.layers, parts)
            if own_need(shape, contract, smaller, rows).total <= room
        ),
        None,
    )
    if fitting is None:
        advice = "not even one layer fits: ask for fewer tokens, or free memory"
    else:
        advice = f"{_options(fitting)} would fit; or ask for fewer tokens, or free memory"
    raise UsageError(
        f"layers {asked} would take {_size(need.weights)} of weights and {_size(need.kv)} of KV "
        f"here, and {_size(room)} may be taken; {advice}"
    )


def _smaller(layers: int, parts: Sequence[Slice]) -> Iterator[tuple[Slice, ...]]:
    """Fewer of the first layers, and then also of the last ones; a layer of each stays."""
    tail = len(parts[1]) if len(parts) > 1 else 0
    for last in range(tail, min(tail, 1) - 1, -1):
        for first in range(len(parts[0]), 0, -1):
            yield own_parts(layers, first, last)


def _options(parts: Sequence[Slice]) -> str:
    tail = f" --private-tail {len(parts[1])}" if len(parts) > 1 else ""
    return f"--private {len(parts[0])}{tail}"


def need_text(parts: Sequence[Slice], need: OwnNeed, free: int) -> str:
    """What own layers take of `free` bytes, in words."""
    return (
        f"private: layers {' and '.join(map(str, parts))} take {_size(need.weights)} of weights "
        f"and {_size(need.kv)} of KV here (of {_size(free)} free)"
    )


def _size(number: int) -> str:
    if number >= 1024 * MIB:
        return f"{number / 2**30:.1f} GiB"
    return f"{number / MIB:.0f} MiB" if number >= 10 * MIB else f"{number / MIB:.1f} MiB"
