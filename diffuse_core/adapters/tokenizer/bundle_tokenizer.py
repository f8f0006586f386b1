"""A model's tokenizer from its bundle, on the light `tokenizers` library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer as FastTokenizer

from diffuse_core.adapters.tokenizer.chat_template import ChatTemplate, printable
from diffuse_core.adapters.tokenizer.text_stream import StoppableStream
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.domain.bundle import Bundle
    from diffuse_core.domain.view import ChatMessage
    from diffuse_core.ports import TextStream, Tokenizer


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """Build the tokenizer that a bundle describes.

    Raises:
        ModelUnusable: the bundle's tokenizer is damaged or hostile.
    """
    template: ChatTemplate | None = None
    if bundle.chat_template is not None:
        special = {"bos_token": bundle.bos, "eos_token": bundle.eos}
        # First, because its process gets ready while the vocabulary is read.
        template = ChatTemplate(bundle.chat_template, {k: v for k, v in special.items() if v})
    return BundleTokenizer(bundle, _read(bundle.tokenizer_json), template)


def _read(data: bytes) -> FastTokenizer:
    try:
        fast = FastTokenizer.from_buffer(data)
    except BaseException as error:
        # A panic of the library's Rust code is no Exception.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ModelUnusable(
            f"the model's tokenizer cannot be read: {printable(str(error))}; use another host "
            "of it, or another model"
        ) from error
    fast.no_padding()
    fast.no_truncation()
    return fast


class BundleTokenizer:
    """Implements ports.Tokenizer.

    The texts of special tokens become those tokens wherever they stand, in what a user wrote
    too: so does `transformers`, with which the ids are equal.
    """

    def __init__(self, bundle: Bundle, fast: FastTokenizer, template: ChatTemplate | None) -> None:
        self._fast = fast
        self._template = template
        self._stop_ids = bundle.stop_ids
        self._context = bundle.context
        added = fast.get_added_tokens_decoder()
        self._skipped = frozenset(token for token, known in added.items() if known.special)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn."""
        return self._stop_ids

    @property
    def context(self) -> int:
        """Positions the model was made for."""
        return self._context

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Render the chat template, with the generation prompt, and encode it.

        Raises:
            UsageError: the model has no template, or the template refuses these messages.
        """
        if self._template is None:
            raise UsageError("the model has no chat template; send the prompt as it is (--raw)")
        text = self._template.render(messages)
        return tuple(self._fast.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode text as it stands, with the model's own leading tokens and no template."""
        return tuple(self._fast.encode(text).ids)

    def stream(self, stop: Sequence[str]) -> TextStream:
        """A fresh stream that skips special tokens."""
        return StoppableStream(self._fast, self._skipped, stop)
