"""What every source of a model has in common: a checked configuration and a table of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.model_config import sizes_of
from diffuse_core.adapters.models.parameter import assembled_pieces
from diffuse_core.adapters.models.shape_count import check_complete, count_shape, is_lean
from diffuse_core.adapters.models.stored_tensor import content_digest, plain_pieces
from diffuse_core.domain.bundle import encode_bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from diffuse_core.adapters.models.parameter import Parameter
    from diffuse_core.adapters.models.stored_tensor import StoredTensor
    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.model_ports import GroupCodes, Progress, RawTensor


class CheckedSource(ABC):
    """Implements model_ports.WeightSource. Holds the table of tensors, never their numbers."""

    def __init__(
        self,
        name: str,
        where: str,
        config: dict[str, object],
        parameters: Mapping[str, Parameter],
    ) -> None:
        """`name` is the id on the network, `where` the place that errors speak of.

        Raises:
            ModelUnusable: a tensor is missing or contradicts the configuration.
        """
        check_complete(config, parameters, where)
        self._id = name
        self._config = config
        self._parameters = parameters

    @property
    def id(self) -> str:
        """Its name on the network."""
        return self._id

    @cached_property
    def content(self) -> str:
        """SHA-256 over what the weights are."""
        return content_digest(self._config, self.stored(self.names))

    @property
    def names(self) -> frozenset[str]:
        """Every tensor that can be read."""
        return frozenset(self._parameters)

    def stored(self, names: Iterable[str]) -> Iterator[StoredTensor]:
        """The stored tensors that these parameters are made of, each once.

        Raises:
            ModelUnusable: there is no such parameter.
        """
        for name in names:
            yield from self._parameter(name).stored()

    def config(self) -> dict[str, object]:
        """The architecture's settings under `transformers`' names."""
        return dict(self._config)

    @property
    def lean(self) -> bool:
        """Whether it is of the family that the lean engine computes."""
        return is_lean(self._config)

    def shape(self, contract: Contract) -> ModelShape:
        """Sizes under a contract."""
        return count_shape(self._config, self._parameters, contract)

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
        parameter = self._parameters.get(name)
        return None if parameter is None else parameter.shape

    def bits_of(self, name: str) -> int:
        """Bits of one stored number."""
        return self._parameter(name).bits

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        """Nothing to bring: the files are here."""
        progress(1.0)

    def pieces(self, name: str) -> Iterator[RawTensor]:
        """A tensor's numbers, in blocks of whole rows.

        Raises:
            ModelUnusable: the file changed or ended while it was read; there is no such tensor.
        """
        parameter = self._parameter(name)
        whole = parameter.whole
        return assembled_pieces(parameter) if whole is None else self._pieces(whole)

    def codes(self, name: str) -> Iterator[GroupCodes] | None:
        """A matrix's 4-bit codes in blocks of whole rows; None when it has none.

        Raises:
            ModelUnusable: the file changed or ended while it was read; there is no such tensor.
        """
        whole = self._parameter(name).whole
        return None if whole is None else self._codes(whole)

    def _parameter(self, name: str) -> Parameter:
        parameter = self._parameters.get(name)
        if parameter is None:
            raise ModelUnusable(
                f"the model has no tensor {name}; its files are incomplete: download it again"
            )
        return parameter

    def _pieces(self, tensor: StoredTensor) -> Iterator[RawTensor]:
        return plain_pieces(tensor)

    def _codes(self, _tensor: StoredTensor) -> Iterator[GroupCodes] | None:
        return None
