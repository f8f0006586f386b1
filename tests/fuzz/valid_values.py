"""Valid values of any typed structure, made from its type: a seed for every kind of message.

They follow the types as msgspec sees them, so that a new message or field is fuzzed without a
word here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_HEX = "0123456789abcdef"


class ValidValues:
    """Draws values; `rng` decides, and `generous` is how long collections are at most."""

    def __init__(self, rng: random.Random, generous: int = 2) -> None:
        self._rng = rng
        self._generous = generous
        self._of: dict[type, Callable[[Any], object]] = {
            inspect.IntType: self._int,
            inspect.FloatType: self._float,
            inspect.StrType: self._str,
            inspect.BytesType: lambda kind: rng.randbytes(self._length(kind)),
            inspect.BoolType: lambda _: rng.random() < 0.5,
            inspect.NoneType: lambda _: None,
            inspect.LiteralType: lambda kind: rng.choice(kind.values),
            inspect.UnionType: lambda kind: self.draw(rng.choice(kind.types)),
            inspect.VarTupleType: self._many,
            inspect.TupleType: lambda kind: tuple(map(self.draw, kind.item_types)),
            inspect.StructType: self._struct,
        }

    def make(self, kind: Any) -> Any:
        """A value of a Python type."""
        return self.draw(inspect.type_info(kind))

    def draw(self, kind: inspect.Type) -> Any:
        """A value of a type as msgspec describes it."""
        if isinstance(kind, inspect.Metadata):
            return self.draw(kind.type)
        return self._of[type(kind)](kind)

    def _length(self, kind: Any) -> int:
        least = kind.min_length or 0
        most = least + self._generous if kind.max_length is None else kind.max_length
        return self._rng.choice((least, min(most, least + self._generous)))

    def _int(self, kind: inspect.IntType) -> int:
        low = kind.ge if kind.ge is not None else 0
        high = 2**40 if kind.le is None and kind.lt is None else kind.le or (kind.lt or 1) - 1
        return self._rng.choice((low, high, self._rng.randint(low, high)))

    def _float(self, kind: inspect.FloatType) -> float:
        low = kind.ge if kind.ge is not None else kind.gt or 0.0
        high = 1e6 if kind.le is None else kind.le
        drawn = self._rng.choice((high, low + (high - low) * self._rng.random()))
        return math.nextafter(low, high) if drawn <= low and kind.gt is not None else drawn

    def _str(self, kind: inspect.StrType) -> str:
        if kind.pattern is not None:
            return "".join(self._rng.choice(_HEX) for _ in range(64))
        return "".join(self._rng.choice("ab:.1é") for _ in range(self._length(kind)))

    def _many(self, kind: inspect.VarTupleType) -> tuple[object, ...]:
        return tuple(self.draw(kind.item_type) for _ in range(self._length(kind)))

    def _struct(self, kind: inspect.StructType) -> object:
        if kind.cls is Slice:
            start = self._rng.randrange(30)
            return Slice(start, start + 1 + self._rng.randrange(30))
        fields = {
            one.name: self.draw(one.type)
            for one in kind.fields
            if one.required or self._rng.random() < 0.7
        }
        if kind.cls is ModelShape:
            self._settle(fields)
        return msgspec.convert(fields, kind.cls) if not fields else kind.cls(**fields)

    def _settle(self, fields: dict[str, Any]) -> None:
        """Kinds of layers that fit together, or none."""
        layers = fields["layers"] = min(fields["layers"], 60)
        fields["kinds"], fields["kind_of"] = (), b""
        if self._rng.random() < 0.5:
            fields["kinds"] = (fields["layer_bytes"],)
            fields["kind_of"] = bytes(layers)
