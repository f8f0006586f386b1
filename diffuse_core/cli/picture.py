"""What a plan is made for: the model, what others hold of it, and what this machine offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from diffuse_core.domain.coverage import COMMITTED, held_slices
from diffuse_core.domain.needs import needs
from diffuse_core.errors import ModelUnknown, UsageError
from diffuse_core.services.model_choice import lack_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.members import Member
    from diffuse_core.domain.needs import Means, Need
    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice


@dataclass(frozen=True)
class Picture:
    """A model of the network, the slices that others hold or will hold of it, and this Host.

    `here` is what the node running here already holds of the model, which is not in `held`;
    `ranking` has every model of the network when the choice was left to it.
    """

    model: ModelRef
    held: tuple[Slice, ...]
    means: Means
    here: Slice | None = None
    ranking: tuple[Need, ...] = ()


def placed(model: ModelRef, members: Sequence[Member], means: Means) -> Picture:
    """The picture for a model that was named."""
    here = held_slices([m for m in members if m.record.node == means.own], model, COMMITTED)
    others = [m for m in members if m.record.node != means.own]
    held = held_slices(others, model, COMMITTED)
    return Picture(model, held, means, here=here[0] if here else None)


def neediest(members: Sequence[Member], means: Means) -> Picture:
    """The picture of the model that needs this machine most.

    Raises:
        ModelUnknown: the network has none.
        UsageError: none of them fits.
    """
    ranking = needs(members, means)
    if not ranking:
        raise ModelUnknown(f"{lack_text(ranking)}; host one with `diffuse host --model ...`")
    if ranking[0].plan is None:
        raise UsageError(f"{lack_text(ranking)}; a host with --model auto would wait for another")
    return replace(placed(ranking[0].model, members, means), ranking=ranking)
