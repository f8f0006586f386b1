"""The language of chat templates: Jinja with what `transformers` gives to it.

Follows transformers' chat_template_utils.py, so that a template gives the same text here.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template
    from jinja2.parser import Parser

MAX_CHARS = 4 * 2**20
"""Characters a chat may become."""


def compile_template(source: str) -> Template:
    """Compile a chat template in a sandbox. Raises jinja2.TemplateError."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _GuardedNamespace
    return environment.from_string(source)


def fill(
    template: Template,
    messages: Sequence[Mapping[str, object]],
    tools: Mapping[str, object],
    special: Mapping[str, str],
) -> str:
    """The text of a chat, with the generation prompt.

    `tools` are those by the name that the template uses, mostly `tools`; None, as `transformers`
    gives it, where there are none. `special` are token texts by the name that templates use:
    `bos_token`, `eos_token`.

    Raises:
        ValueError: it becomes longer than MAX_CHARS.
        Exception: whatever else a hostile template provokes.
    """
    pieces: list[str] = []
    length = 0
    for piece in template.generate(
        messages=messages, documents=None, add_generation_prompt=True, **tools, **special
    ):
        length += len(piece)
        if length > MAX_CHARS:
            raise ValueError(f"it makes more than {MAX_CHARS} characters of the chat")
        pieces.append(piece)
    return "".join(pieces)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words, for training; the text is the same."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _GuardedNamespace(Namespace):
    """Refuses names by which a template could reach Python's internals."""

    def __init__(self, /, *args: object, **kwargs: object) -> None:
        held: dict[str, object] = {}
        held.update(*args, **kwargs)
        for name in held:
            _check_name(name)
        super().__init__(held)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a template cannot set {name!r}")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - local time, as templates expect


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter it does not escape HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
