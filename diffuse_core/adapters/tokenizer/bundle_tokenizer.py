"""A model's tokenizer from its bundle, on the light `tokenizers` library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.tokenizer.chat_template import MAX_CHARS, ChatTemplate
from diffuse_core.adapters.tokenizer.chat_values import ChatValues, tool_values
from diffuse_core.adapters.tokenizer.library_guard import library_errors, read_tokenizer
from diffuse_core.adapters.tokenizer.quoted_words import QuotedWords, split_at
from diffuse_core.adapters.tokenizer.text_stream import StoppableStream
from diffuse_core.adapters.tokenizer.token_bytes import TokenBytes
from diffuse_core.domain.tool_formats import SHOWN_TOKENS, find_format, tools_name
from diffuse_core.errors import ModelUnusable, ToolsUnknown, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer as FastTokenizer

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.tools import Tool, ToolFormat
    from diffuse_core.domain.view import ChatMessage
    from diffuse_core.ports import TextStream, Tokenizer

MAX_SPECIAL = 2**15
"""Each is looked for in every message; models of the field have some thousands at most."""


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """Build the tokenizer that a bundle describes. Blocks for some tens of milliseconds.

    Raises:
        ModelUnusable: the bundle's tokenizer is damaged or hostile.
    """
    template: ChatTemplate | None = None
    if bundle.chat_template is not None:
        special = {"bos_token": bundle.bos, "eos_token": bundle.eos}
        # First, because its process gets ready while the vocabulary is read.
        template = ChatTemplate(bundle.chat_template, {k: v for k, v in special.items() if v})
    return BundleTokenizer(bundle, read_tokenizer(bundle.tokenizer_json), template)


class BundleTokenizer:
    """Implements ports.Tokenizer, with ids equal to those of `transformers`.

    Except that in a chat the texts of special tokens become those tokens only where the template
    wrote them (see quoted_words). In a raw prompt they do so everywhere.
    """

    def __init__(self, bundle: Bundle, fast: FastTokenizer, template: ChatTemplate | None) -> None:
        self._fast = fast
        self._template = template
        self._stop_ids = bundle.stop_ids
        self._context = bundle.context
        added = fast.get_added_tokens_decoder()
        special = {token: known.content for token, known in added.items() if known.special}
        if len(special) > MAX_SPECIAL:
            raise ModelUnusable(f"the model's tokenizer has {len(special)} special tokens")
        self._skipped = frozenset(special)
        self._shown = {token: text for token, text in special.items() if text in SHOWN_TOKENS}
        self._quoted = QuotedWords(special.values())
        source = bundle.chat_template or ""
        self._values = ChatValues(source)
        self._tools_name = tools_name(source)
        self._tool_format = find_format(source)
        words = {token: known.content for token, known in added.items()}
        self._bytes = TokenBytes(fast, bundle.tokenizer_json, words)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn."""
        return self._stop_ids

    @property
    def context(self) -> int:
        """Positions the model was made for."""
        return self._context

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None where its template tells no known way."""
        return self._tool_format

    def encode_chat(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Render the chat template, with the generation prompt, and encode it.

        Raises:
            ToolsUnknown: there are tools, and the template knows none.
            UsageError: the model has no template, or the template refuses these messages; or the
                chat is too long.
            ModelUnusable: its tokenizer fails on the text.
        """
        if self._template is None:
            raise UsageError("the model has no chat template; send the prompt as it is (--raw)")
        name = self._tools_name
        if name is None and (tools or any(_has_tools(message) for message in messages)):
            raise ToolsUnknown(
                "the model's chat template knows no tools; leave them out, or use another model"
            )
        _check_size(messages, tools)
        described = tool_values(tools)
        if name == "xml_tools":
            described = [tool["function"] for tool in described]
        (chat, told), mark = self._quoted.mark([self._values.messages(messages), described])
        text = self._template.render(chat, told, name or "tools")
        # The template itself writes the leading tokens.
        parts = split_at(text, mark)
        return tuple(token for part in parts for token in self._ids(part, leading=False))

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode text as it stands, with the model's own leading tokens and no template.

        Raises:
            UsageError: the text cannot be written as UTF-8.
            ModelUnusable: the tokenizer fails on the text.
        """
        return self._ids(text, leading=True)

    def stream(self, stop: Sequence[str], *, calls: bool = False) -> TextStream:
        """A fresh stream that skips special tokens; with `calls` not those that mark calls."""
        return StoppableStream(self._fast, self._skipped, stop, self._shown if calls else {})

    def token_text(self, token: int) -> str:
        """What a token shows amid others; special ones by name, half characters as U+FFFD.

        Raises:
            ModelUnusable: the tokenizer fails on it.
        """
        with library_errors("the model's tokenizer failed on a token"):
            once = self._fast.decode([token], skip_special_tokens=False)
            twice = self._fast.decode([token, token], skip_special_tokens=False)
        # Some decoders take the space from what begins a text.
        return twice[len(once) :] if twice.startswith(once) else once

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes that a token adds to a text; None where the tokenizer does not tell them."""
        return self._bytes.of(token)

    def _ids(self, text: str, *, leading: bool) -> tuple[int, ...]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the prompt has half a character at {error.start}; send valid Unicode"
            ) from error
        with library_errors("the model's tokenizer failed on the prompt"):
            return tuple(self._fast.encode(text, add_special_tokens=leading).ids)


def _has_tools(message: ChatMessage) -> bool:
    return message.role == "tool" or bool(message.tool_calls)


def _texts(message: ChatMessage) -> tuple[str, ...]:
    return message.content, message.reasoning, message.name, message.tool_call_id


def _check_size(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> None:
    texts = [text for m in messages for text in _texts(m)]
    calls = [call for message in messages for call in message.tool_calls]
    texts += [text for call in calls for text in (call.id, call.name, call.arguments)]
    texts += [text for tool in tools for text in (tool.name, tool.description, tool.parameters)]
    size = sum(map(len, texts))
    if size > MAX_CHARS:
        raise UsageError(f"a chat may have {MAX_CHARS} characters; shorten it")
