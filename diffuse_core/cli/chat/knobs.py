"""What `/set` sets: the very options of the command, with their bounds and their words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.asking_options import asked
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.slash import nearest
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = """
temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty logit_bias
seed count logprobs max_tokens min_tokens stop grace audit no_speculation timings
"""
FIELDS = tuple(_FIELDS.split())
"""Names that these options have in the program."""
_OPTIONAL = ("seed", "logprobs")
"""Those that there need not be."""
NONE = ("", "none", "off", "new", "random")
_ON = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_SHORT = {"temp": "temperature", "max": "max-tokens", "count": "n", "guess": "speculation"}
MAX_TEXT = 8_192
"""Characters of a value that are looked at."""
MAX_ITEMS = 2_000


class Knobs:
    """The options of a command that say how answers are made, and may be changed meanwhile.

    Args:
        command: The command, which has these options.
        given: Their values, changed in place.
    """

    def __init__(self, command: click.Command, given: dict[str, Any]) -> None:
        self._context = click.Context(command)
        self._given = given
        options = {param.name: param for param in command.params}
        self._shown = {name: _shown(name, options[name]) for name in FIELDS}
        self._options = {self._shown[name]: options[name] for name in FIELDS}

    @property
    def names(self) -> tuple[str, ...]:
        """Names that can be set, in the order of the help."""
        return tuple(self._options)

    def set(self, name: str, text: str) -> str:
        """Take over a value as it is typed; the setting and its value as one text.

        Raises:
            UsageError: there is no such setting, or it cannot have this value.
        """
        shown, option = self._find(name)
        if len(text) > MAX_TEXT:
            raise UsageError(f"{shown}: the value is longer than {MAX_TEXT} characters")
        before = self._given[str(option.name)]
        self._given[str(option.name)] = self._value(shown, option, text)
        try:
            self._check()
        except UsageError:
            self._given[str(option.name)] = before
            raise
        return f"{shown} {self.text(shown)}"

    def text(self, name: str) -> str:
        """The value of a setting, as it would be typed."""
        option = self._options[name]
        value = self._given[str(option.name)]
        if option.name == "no_speculation":
            value = not value
        if isinstance(value, bool):
            return "on" if value else "off"
        if value is None:
            return "none"
        if option.name == "logit_bias":
            return " ".join(f"{token}={bias:g}" for token, bias in value) or "none"
        if isinstance(value, tuple):
            return " ".join(map(_quoted, value)) or "none"
        return f"{value:.12g}" if isinstance(value, float) else str(value)

    def lines(self) -> Iterator[str]:
        """All settings; a star stands at those that are not as without options."""
        usual = Knobs(self._context.command, self._defaults())
        for name in self.names:
            text = self.text(name)
            star = " " if text == usual.text(name) else "*"
            yield f"{star} {name:<20} {text}"

    def values(self) -> dict[str, Any]:
        """All settings by the names of their options."""
        return {field: self._given[field] for field in FIELDS}

    def load(self, values: dict[str, Any]) -> None:
        """Take over what `values` gave, as far as it is known here.

        Raises:
            UsageError: one of them cannot be; then none is taken over.
        """
        before = self.values()
        try:
            for field, value in values.items():
                name = "no_speculation" if field == "speculate" else field
                if name in FIELDS:
                    self.set(self._shown[name], _typed(value))
        except UsageError:
            self._given.update(before)
            raise

    def _defaults(self) -> dict[str, Any]:
        """The values without options."""
        return self._context.command.make_context("", [], resilient_parsing=True).params

    def _find(self, name: str) -> tuple[str, click.Parameter]:
        asked_for = name.lower().lstrip("-").replace("_", "-")
        asked_for = _SHORT.get(asked_for, asked_for)
        option = self._options.get(asked_for)
        if option is not None:
            return asked_for, option
        near = nearest(asked_for, self.names)
        meant = f"; did you mean {near}?" if near else f"; there are {', '.join(self.names)}"
        raise UsageError(f"there is no setting {clean_line(name, 40)!r}{meant}")

    def _value(self, shown: str, option: click.Parameter, text: str) -> Any:
        if isinstance(option, click.Option) and option.is_flag:
            on = _ON.get(text.lower())
            if on is None:
                raise UsageError(f"{shown} is on or off")
            return not on if option.name == "no_speculation" else on
        value: Any = text
        if option.multiple:
            value = _words(shown, text)
        elif text.lower() in NONE:
            if not text:
                raise UsageError(f"{shown} is {self.text(shown)}; /set {shown} VALUE changes it")
            if option.name in _OPTIONAL:
                return None
        try:
            return option.process_value(self._context, value)
        except click.BadParameter as error:
            raise UsageError(f"{shown}: {error.message}") from error

    def _check(self) -> None:
        """Refuse what no network may be asked with; its bounds are those of the message."""
        import msgspec

        from diffuse_core.domain.view import ChatMessage, GenerateRequest

        request = asked({**self._given, "raw": False}, "any", (ChatMessage("user", "any"),))
        try:
            msgspec.convert(msgspec.to_builtins(request), GenerateRequest)
        except msgspec.ValidationError as error:
            raise UsageError(f"that cannot be asked: {error}") from error


def _shown(name: str, option: click.Parameter) -> str:
    """A setting's name: as its option has it."""
    if name == "no_speculation":
        return "speculation"
    return option.opts[0].removeprefix("--")


def _words(shown: str, text: str) -> tuple[str, ...]:
    if text.lower() in NONE:
        return ()
    reader = shlex.shlex(text, posix=True, punctuation_chars="")
    # Only quotation marks mean something: \n is a line break, also without them.
    reader.whitespace_split, reader.escape, reader.commenters = True, "", ""
    try:
        words = list(reader)
    except ValueError as error:
        raise UsageError(f'{shown}: a quotation mark is missing; write END "two words"') from error
    return tuple(word.replace("\\n", "\n").replace("\\t", "\t") for word in words)


def _typed(value: object) -> str:
    """A value of a file, as it would be typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(_item, value[:MAX_ITEMS])) or "none"
    return "none" if value is None else str(value)


def _item(value: object) -> str:
    if isinstance(value, list | tuple) and len(value) == 2:
        return f"{value[0]}={value[1]}"
    return shlex.quote(str(value).replace("\n", "\\n").replace("\t", "\\t"))


def _quoted(text: str) -> str:
    inner = text.replace("\n", "\\n").replace("\t", "\\t")
    return shlex.quote(clean_line(inner))
