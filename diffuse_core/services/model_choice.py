"""Which model a Host takes: the one named, in the network's contract, or with `auto` any.

`auto` waits for a model that needs this Host, can be got by its name, and turns out to be what
the network says it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.domain.bounded import forget_oldest
from diffuse_core.domain.bundle import bundle_digest
from diffuse_core.domain.needs import EFFECTS, Means, Need, needs
from diffuse_core.domain.records import ModelRef, fingerprint
from diffuse_core.domain.selection import DEMO_ALIAS, fetch_name
from diffuse_core.errors import ModelUnknown
from diffuse_core.services.devices import can_compute, usual_contract

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import (
        DeviceKind,
        ModelSource,
        ModelStore,
        Progress,
        WeightSource,
    )
    from diffuse_core.services.devices import Device
    from diffuse_core.services.node import Node

AUTO = "auto"
CONTRACTS: tuple[Contract, ...] = ("bf16", "fp32", "int8", "int4")
"""Which one a Host joins where the network has a model in several."""
LOOK_S = 1.0
"""How often what gossip knows is looked at while nothing can be done."""
SPREAD_S = 2.0
"""Hosts that choose at once begin up to so far apart, so that later ones see earlier claims."""
RETRY_S = (15.0, 600.0)
"""A model that could not be got is tried again after so long; twice as long each time."""
MAX_FAILED = 4096
"""Models remembered as not to be got, more than are ever reckoned with at once."""
MAX_TOLD = 32
"""Models told of as not to be got: hostile records may name any number."""


def choose_contract(source: ModelSource, known: tuple[ModelRef, ...], device: Device) -> Contract:
    """The contract this model already has on the network, else the usual one.

    Nodes with different contracts never share a Route, so joining what is there comes first.
    """
    here = {ref.fingerprint for ref in known}
    for contract in CONTRACTS:
        if can_compute(device.kind, contract) and fingerprint(source.content, contract) in here:
            return contract
    return usual_contract(source, device)


def computed(device: DeviceKind, asked: Contract | None) -> frozenset[Contract]:
    """The contracts that a Host may join: the one asked for, else all that its device computes."""
    return frozenset(c for c in CONTRACTS if asked in (None, c) and can_compute(device, c))


def reference(source: ModelSource, contract: Contract) -> ModelRef:
    """How `source` under `contract` is named in records."""
    return ModelRef(
        id=source.id,
        fingerprint=fingerprint(source.content, contract),
        contract=contract,
        shape=source.shape(contract),
        bundle=bundle_digest(source.bundle()),
    )


@dataclass
class _Failure:
    """A model that could not be had, since when, and for how long it is left alone."""

    until: float
    pause: float


class ModelSearch:
    """Finds the model that needs a Host most, and opens it."""

    def __init__(
        self,
        node: Node,
        store: ModelStore,
        means: Means,
        tell: Progress,
        enter: Callable[[str], None],
    ) -> None:
        """`enter` is told, in words, what the search is about; `tell` how far reading is."""
        self._node = node
        self._store = store
        self._means = means
        self._tell = tell
        self._enter = enter
        self._failed: dict[ModelRef, _Failure] = {}
        self._told: str | None = None
        self._skipped: set[ModelRef] = set()

    async def find(self) -> tuple[WeightSource, ModelRef]:
        """Wait until some model of the network can be held, and open it.

        Raises:
            UsageError: the settings of the hub are malformed.
        """
        await asyncio.sleep(SPREAD_S * int.from_bytes(self._means.own[:4]) / 2**32)
        while True:
            found = needs(self._node.members(), self._means)
            ready = self._ready(found)
            if not ready:
                self._wait_for(found)
                await asyncio.sleep(LOOK_S)
                continue
            model = ready[0].model
            self._enter(f"reading {model.id}")
            opened = await self.open(model, self._tell)
            if opened is None:
                await asyncio.sleep(LOOK_S)
            # While files were read another Host may have claimed the layers that were lacking.
            elif self._still_needed(ready[0]):
                self._node.note("info", f"chose {model.id} in {model.contract}: {ready[0].reason}")
                return opened, model

    def _ready(self, found: Sequence[Need]) -> list[Need]:
        """Those that can be tried now: first the ones that never failed, then by their pauses."""
        for need in found:
            if need.plan is not None and fetch_name(need.model.id) is None:
                self._skip(
                    need.model,
                    "its name is none of the hub, so only hosts that have its files can hold it",
                )
        ready = [
            need
            for need in found
            if need.plan is not None
            and fetch_name(need.model.id) is not None
            and self._may_try(need.model)
        ]
        return sorted(ready, key=self._pause)

    def _pause(self, need: Need) -> float:
        failure = self._failed.get(need.model)
        return 0.0 if failure is None else failure.pause

    def _may_try(self, model: ModelRef) -> bool:
        failure = self._failed.get(model)
        return failure is None or self._node.clock.monotonic() >= failure.until

    def _still_needed(self, chosen: Need) -> bool:
        """Whether the model is needed as it was; models that came meanwhile do not matter."""
        now = self._ready(needs(self._node.members(), self._means))
        again = next((need for need in now if need.model == chosen.model), None)
        if again is None:
            return False
        return now[0] is again or EFFECTS.index(again.effect) <= EFFECTS.index(chosen.effect)

    @property
    def passed(self) -> frozenset[ModelRef]:
        """Models that could not be had a short while ago."""
        return frozenset(model for model in self._failed if not self._may_try(model))

    @property
    def failed(self) -> frozenset[ModelRef]:
        """Models that could not be had, whether or not they may be tried again."""
        return frozenset(self._failed)

    async def open(self, model: ModelRef, tell: Progress) -> WeightSource | None:
        """The model's files, when they can be got and are what the network has."""
        name = fetch_name(model.id)
        if name is None:
            self._give_up(model, "its name is none of the hub")
            return None
        self._told = None
        if name != DEMO_ALIAS and await asyncio.to_thread(_is_path, name):
            # Others choose the names: they must not choose among the files of this machine.
            self._give_up(model, f"{name} is a path here, and files of this machine need --model")
            return None
        try:
            source = await asyncio.to_thread(self._store.open, name, tell)
            here = await asyncio.to_thread(reference, source, model.contract)
        except ModelUnknown as error:
            self._give_up(model, str(error))
            return None
        if here != model:
            what = "weights" if here.fingerprint != model.fingerprint else "name or figures"
            self._give_up(model, f"the network's has other {what} than what {name} is here")
            return None
        self._failed.pop(model, None)
        return source

    def _give_up(self, model: ModelRef, why: str) -> None:
        before = self._failed.pop(model, None)
        pause = RETRY_S[0] if before is None else min(before.pause * 2, RETRY_S[1])
        self._failed[model] = _Failure(self._node.clock.monotonic() + pause, pause)
        forget_oldest(self._failed, MAX_FAILED)
        self._skip(model, why)

    def _skip(self, model: ModelRef, why: str) -> None:
        """Tell once that a model is left alone."""
        if model in self._skipped or len(self._skipped) >= MAX_TOLD:
            return
        self._skipped.add(model)
        self._node.note("warning", f"skips {model.id} in {model.contract}: {why}")

    def _wait_for(self, found: tuple[Need, ...]) -> None:
        """Tell once what is waited for."""
        text = waiting_text(found)
        if text != self._told:
            self._told = text
            self._enter(text)
            self._node.note("info", text)


def _is_path(name: str) -> bool:
    path = Path(name)
    return path.exists() or path.is_symlink()


def lack_text(found: Sequence[Need]) -> str:
    """Why none of these models can be held here."""
    if not found:
        return "no model on this network yet"
    if all(need.plan is None for need in found):
        names = ", ".join(sorted({need.model.id for need in found})[:3])
        return f"no model of this network can be held here ({names}: {found[0].reason})"
    return "no model of this network can be got here"


def waiting_text(found: Sequence[Need]) -> str:
    """What a Host waits for that none of these models needs, or that can get none of them."""
    if not found:
        return f"{lack_text(found)}; waiting for one"
    again = "" if all(need.plan is None for need in found) else ", and trying again"
    return f"{lack_text(found)}; waiting for another{again}"
