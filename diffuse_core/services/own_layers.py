"""The weights of a Client's own layers: planned against free memory, loaded once, checked.

They outlive the links to the network: a chat keeps them from one answer to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.domain.own_layers import check_room, kv_rooms, need_text, own_need
from diffuse_core.domain.selection import DEMO_ALIAS, fetch_name
from diffuse_core.errors import ModelUnknown, ModelUnusable
from diffuse_core.services.compute import ComputeThread
from diffuse_core.services.devices import can_compute, default_capacity
from diffuse_core.services.model_choice import reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.records import ModelRef
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import (
        DeviceKind,
        Executor,
        ExecutorLoader,
        ModelStore,
        Progress,
        WeightSource,
    )
    from diffuse_core.services.devices import Device


class Ended(Exception):  # noqa: N818
    """Raised inside blocking work to end it early."""


@dataclass(frozen=True)
class Means:
    """What own layers are read and computed with.

    `device` is called on the executor thread with what to compute on, None for the best there is;
    `tell` is told in words what is taken, and `progress` what is being done and which fraction of
    it is, on that thread.
    """

    device: Callable[[DeviceKind | None], Device]
    store: ModelStore
    load: ExecutorLoader
    tell: Callable[[str], object]
    progress: Callable[[str, float], object]


class OwnLayers:
    """Loaded parts of one model. `named` is where its weights are, when its name does not tell."""

    def __init__(self, means: Means, named: str | None = None) -> None:
        self._means = means
        self._named = named
        self._loading = 0
        self._room = 0
        self.compute = ComputeThread()
        self.model: ModelRef | None = None
        self.parts: tuple[Slice, ...] = ()
        self.executors: tuple[Executor, ...] = ()

    def holds(self, model: ModelRef, parts: tuple[Slice, ...]) -> bool:
        """Whether just these are loaded."""
        return (self.model, self.parts) == (model, parts) and bool(self.executors)

    def kv_budgets(self) -> tuple[int, ...]:
        """Bytes of KV that each part may take."""
        if self.model is None:
            return ()
        shape, contract = self.model.shape, self.model.contract
        left = max(0, self._room - own_need(shape, contract, self.parts, 0).weights)
        return kv_rooms(shape, contract, self.parts, left)

    async def load(self, model: ModelRef, parts: tuple[Slice, ...], rows: int) -> None:
        """Have these parts, and room for a Session of `rows` positions through them.

        Raises:
            UsageError: they do not fit here.
            ModelUnknown: the weights cannot be had.
            ModelUnusable: what was found are not the network's.
        """
        if self.holds(model, parts):
            check_room(model.shape, model.contract, parts, rows, self._room)
            return
        self.drop()
        try:
            await self._load(model, parts, rows)
        except BaseException:
            self.drop()
            raise

    async def _load(self, model: ModelRef, parts: tuple[Slice, ...], rows: int) -> None:
        shape, contract = model.shape, model.contract
        device = await self.compute.run(lambda: self._device(model))
        room = default_capacity(device.free)
        check_room(shape, contract, parts, rows, room)
        self._means.tell(need_text(parts, own_need(shape, contract, parts, rows), device.free))
        getting = self._progress(f"getting {model.id}")
        source = await self.compute.run(lambda: self._open(model, getting))
        self.compute.in_loop = device.kind != "cpu" or device.threads == 1
        executors: list[Executor] = []
        for part in parts:
            progress = self._progress(f"loading layers {part}")

            def work(part: Slice = part, progress: Progress = progress) -> Executor:
                return self._means.load(source, part, contract, progress, device=device.kind)

            executors.append(await self.compute.run(work))
        self._room, self.model, self.parts = room, model, parts
        self.executors = tuple(executors)

    def drop(self) -> None:
        """Free the weights, and end what is being loaded; idempotent."""
        self._loading += 1
        self.model, self.parts, self.executors = None, (), ()

    def close(self) -> None:
        """Free everything; idempotent."""
        self.drop()
        self.compute.close()

    def _device(self, model: ModelRef) -> Device:
        device = self._means.device(None)
        return device if can_compute(device.kind, model.contract) else self._means.device("cpu")

    def _progress(self, what: str) -> Progress:
        mine = self._loading

        def progress(fraction: float) -> None:
            if self._loading != mine:
                raise Ended
            self._means.progress(what, fraction)

        return progress

    def _open(self, model: ModelRef, getting: Progress) -> WeightSource:
        """The network's model, from where it is named, else by its name."""
        name = self._named or fetch_name(model.id)
        if name is None:
            raise ModelUnknown(
                f"{model.id} is no name under which the weights of its first layers could be had "
                "here; say where they are: --private-model PATH, ORG/NAME or demo"
            )
        if self._named is None and name != DEMO_ALIAS and Path(name).exists():
            # Others choose the names: they must not choose among the files of this machine.
            raise ModelUnknown(
                f"{name} is a path here; if these are the weights of the network's model, "
                f"add --private-model {name}"
            )
        try:
            source = self._means.store.open(name, getting)
        except ModelUnusable:
            raise
        except ModelUnknown as error:
            raise ModelUnknown(
                f"the weights of the layers that are to run here cannot be had: {error}. Say "
                "where they are: --private-model PATH, ORG/NAME or demo"
            ) from error
        here = reference(source, model.contract)
        if here.fingerprint != model.fingerprint or here.shape != model.shape:
            raise ModelUnusable(
                f"{name} has other weights than {model.id} on the network, so that its layers "
                "cannot run here; name the same files: --private-model PATH or ORG/NAME@REVISION"
            )
        return source
