"""The rules by which a version reads messages, written down to hold later ones to them.

`describe` notes every type of the wire with its bounds, as JSON. `problem` says what a program
with such rules finds wrong with a value: it ignores fields that it does not know, as msgspec does.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

Kind = Any
"""A description: a word, or an object of one entry, which names the sort."""


class Rules:
    """Descriptions of types; structures are described once, by name."""

    def __init__(self, structs: dict[str, Any] | None = None) -> None:
        """`structs` are those of rules that were written down."""
        self.structs: dict[str, Any] = {} if structs is None else structs

    def describe(self, kind: inspect.Type) -> Kind:
        """What a type takes."""
        if isinstance(kind, inspect.Metadata):
            return self.describe(kind.type)
        if isinstance(kind, inspect.StructType):
            return {"struct": self._struct(kind)}
        if isinstance(kind, inspect.UnionType):
            return {"union": [self.describe(one) for one in kind.types]}
        if isinstance(kind, inspect.VarTupleType):
            lengths = [kind.min_length or 0, kind.max_length]
            return {"many": [self.describe(kind.item_type), *lengths]}
        if isinstance(kind, inspect.TupleType):
            return {"each": [self.describe(one) for one in kind.item_types]}
        return _plain(kind)

    def _struct(self, kind: inspect.StructType) -> str:
        name = kind.cls.__name__
        if name not in self.structs:
            self.structs[name] = {}  # A structure may hold others of its kind.
            self.structs[name] = {
                "tag": [kind.tag_field, kind.tag],
                "array": kind.array_like,
                "fields": [
                    [one.encode_name, one.required, self.describe(one.type)] for one in kind.fields
                ],
            }
        return name

    def problem(self, value: object, kind: Kind) -> str | None:
        """Why the rules refuse a value as it came out of msgpack; None when they take it."""
        ((sort, about),) = kind.items()
        if sort == "union":
            return self._union_problem(value, about)
        if sort == "struct":
            return self._struct_problem(value, about)
        if sort not in ("many", "each"):
            return _plain_problem(value, sort, about)
        if not isinstance(value, list):
            return f"{value!r:.80} is no list"
        if sort == "many":
            item, least, most = about
            if not least <= len(value) <= (len(value) if most is None else most):
                return f"{len(value)} values where {least} to {most} are taken"
            about = [item] * len(value)
        if len(value) != len(about):
            return f"{len(value)} values where {len(about)} are taken"
        found = (self.problem(one, item) for one, item in zip(value, about, strict=True))
        return next(filter(None, found), None)

    def _union_problem(self, value: object, kinds: list[Kind]) -> str | None:
        problems = [self.problem(value, kind) for kind in kinds]
        if None in problems:
            return None
        # Of several the one of the kind that is meant says most.
        return max((told for told in problems if told), key=lambda told: " in " in told)

    def _struct_problem(self, value: object, name: str) -> str | None:
        rules = self.structs[name]
        field, tag = rules["tag"]
        if rules["array"]:
            if not isinstance(value, list):
                return f"{value!r:.80} is no list of {name}"
            names = [one[0] for one in rules["fields"]]
            value = dict(zip(names, value, strict=False))
        if not isinstance(value, dict):
            return f"{value!r:.80} is no {name}"
        if tag is not None and value.get(field) != tag:
            return f"{value.get(field)!r} is not {tag!r}"
        for key, required, kind in rules["fields"]:
            if key in value:
                if told := self.problem(value[key], kind):
                    return f"{key} in {name}: {told}"
            elif required:
                return f"{key} in {name} is missing"
        return None


def _plain(kind: inspect.Type) -> Kind:
    if isinstance(kind, inspect.IntType):
        least = kind.ge if kind.ge is not None or kind.gt is None else kind.gt + 1
        most = kind.le if kind.le is not None or kind.lt is None else kind.lt - 1
        return {"int": [least, most]}
    if isinstance(kind, inspect.FloatType):
        return {"float": [kind.ge if kind.ge is not None else kind.gt, kind.le]}
    if isinstance(kind, inspect.StrType):
        return {"str": [kind.min_length or 0, kind.max_length, kind.pattern]}
    if isinstance(kind, inspect.BytesType):
        return {"bytes": [kind.min_length or 0, kind.max_length]}
    if isinstance(kind, inspect.LiteralType):
        return {"one of": list(kind.values)}
    return {"bool" if isinstance(kind, inspect.BoolType) else "none": None}


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bytes": (bytes,),
    "bool": (bool,),
    "none": (type(None),),
}


def _plain_problem(value: Any, sort: str, about: Any) -> str | None:
    if sort == "one of":
        return None if value in about else f"{value!r} is none of {about}"
    if not isinstance(value, _TYPES[sort]) or (isinstance(value, bool) and sort != "bool"):
        return f"{value!r:.80} is no {sort}"
    if about is None:
        return None
    size = value if sort in ("int", "float") else len(value)
    least, most = about[:2]
    if (least is not None and size < least) or (most is not None and size > most):
        return f"{size} where {least} to {most} are taken"
    if sort == "str" and about[2] and not re.search(about[2], value):
        return f"{value!r:.80} is not like {about[2]}"
    return None
