"""A source of weights over the parameters of a module in the test's own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.model_ports import RawTensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import torch

    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.model_ports import GroupCodes, Progress

NOT_SETTINGS = ("transformers_version", "architectures", "dtype", "attn_implementation")


class StateSource:
    """Implements model_ports.WeightSource, as far as an executor asks. Tells what was read."""

    def __init__(self, model: torch.nn.Module, rows_a_piece: int = 7) -> None:
        saved = model.config.to_diff_dict()
        self.settings: dict[str, object] = {
            key: value
            for key, value in saved.items()
            if key not in NOT_SETTINGS and not key.startswith("_")
        }
        self.settings["model_type"] = model.config.model_type
        self.state = dict(model.state_dict())
        if model.config.tie_word_embeddings:
            del self.state["lm_head.weight"]
        self.rows = rows_a_piece
        self.fetched: set[str] = set()
        self.reads: list[str] = []

    @property
    def id(self) -> str:
        return "tiny"

    @property
    def content(self) -> str:
        return "0" * 64

    @property
    def lean(self) -> bool:
        raise NotImplementedError

    def shape(self, contract: Contract) -> ModelShape:
        raise NotImplementedError

    def bundle(self) -> bytes:
        raise NotImplementedError

    def config(self) -> dict[str, object]:
        return dict(self.settings)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.state)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        return tuple(self.state[name].shape) if name in self.state else None

    def bits_of(self, name: str) -> int:
        return 8 * self.state[name].element_size()

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        self.fetched |= set(names)
        progress(1.0)

    def pieces(self, name: str) -> Iterator[RawTensor]:
        assert name in self.fetched
        self.reads.append(name)
        for block in self.state[name].split(self.rows):
            yield RawTensor("fp32", tuple(block.shape), block.contiguous().numpy().tobytes())

    def codes(self, name: str) -> Iterator[GroupCodes] | None:
        assert name in self.names
        return None
