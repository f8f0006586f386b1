"""A model's chat template: Jinja, in a sandbox, as `transformers` renders it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.view import ChatMessage

MAX_MESSAGES = 1024
MAX_CHARS = 16 * 2**20


def render(source: str, messages: Sequence[ChatMessage], special: dict[str, str]) -> str:
    """Render `messages` with the generation prompt; `special` are token texts by name.

    Raises:
        UsageError: the template refuses the messages, or does not work.
    """
    if len(messages) > MAX_MESSAGES or sum(len(m.content) for m in messages) > MAX_CHARS:
        raise UsageError(f"a chat may have {MAX_MESSAGES} messages and {MAX_CHARS} characters")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    plain = [{"role": message.role, "content": message.content} for message in messages]
    pieces: list[str] = []
    length = 0
    try:
        template = environment.from_string(source)
        for piece in template.generate(
            messages=plain, tools=None, documents=None, add_generation_prompt=True, **special
        ):
            length += len(piece)
            if length > MAX_CHARS:
                raise UsageError("the model's chat template writes without end")
            pieces.append(piece)
    except TemplateError as error:
        raise UsageError(f"the model's chat template refused the chat: {error}") from error
    return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
