"""What every source of a model has in common: a checked configuration and a table of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.model_config import sizes_of
from diffuse_core.adapters.models.shape_count import check_complete, count_shape
from diffuse_core.adapters.models.stored_tensor import content_digest, plain_pieces
from diffuse_core.domain.bundle import encode_bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from diffuse_core.adapters.models.stored_tensor import StoredTensor
    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.ports import GroupCodes, Progress, RawTensor


class CheckedSource(ABC):
    """Implements ports.WeightSource. Holds the table of tensors, never their numbers."""

    def __init__(
        self,
        name: str,
        where: str,
        config: dict[str, object],
        tensors: Mapping[str, StoredTensor],
    ) -> None:
        """`name` is the id on the network, `where` the place that errors speak of.

        Raises:
            ModelUnusable: a tensor is missing or contradicts the configuration.
        """
        check_complete(config, tensors, where)
        self._id = name
        self._config = config
        self._tensors = tensors

    @property
    def id(self) -> str:
        """Its name on the network."""
        return self._id

    @cached_property
    def content(self) -> str:
        """SHA-256 over what the weights are."""
        return content_digest(self._config, self._tensors.values())

    @property
    def names(self) -> frozenset[str]:
        """Every tensor that can be read."""
        return frozenset(self._tensors)

    def config(self) -> dict[str, object]:
        """The architecture's settings under `transformers`' names."""
        return dict(self._config)

    def shape(self, contract: Contract) -> ModelShape:
        """Sizes under a contract."""
        return count_shape(self._config, self._tensors, contract)

    def bundle(self) -> bytes:
        """The tokenizer bundle, made once."""
        return self._bundle

    @cached_property
    def _bundle(self) -> bytes:
        return encode_bundle(self._make_bundle(sizes_of(self._config).context))

    @abstractmethod
    def _make_bundle(self, context: int) -> Bundle:
        """The tokenizer bundle of a model with so many positions."""

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """A tensor's shape, from the headers; None when there is none of that name."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.shape

    def bits_of(self, name: str) -> int:
        """Bits of one stored number."""
        return self._stored(name).bits

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        """Nothing to bring: the files are here."""
        progress(1.0)

    def pieces(self, name: str) -> Iterator[RawTensor]:
        """A tensor's numbers, in blocks of whole rows.

        Raises:
            ModelUnusable: the file changed or ended while it was read; there is no such tensor.
        """
        return self._pieces(self._stored(name))

    def codes(self, name: str) -> Iterator[GroupCodes] | None:
        """A matrix's 4-bit codes in blocks of whole rows; None when it has none.

        Raises:
            ModelUnusable: the file changed or ended while it was read; there is no such tensor.
        """
        return self._codes(self._stored(name))

    def _stored(self, name: str) -> StoredTensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelUnusable(
                f"the model has no tensor {name}; its files are incomplete: download it again"
            )
        return tensor

    def _pieces(self, tensor: StoredTensor) -> Iterator[RawTensor]:
        return plain_pieces(tensor)

    def _codes(self, _tensor: StoredTensor) -> Iterator[GroupCodes] | None:
        return None
