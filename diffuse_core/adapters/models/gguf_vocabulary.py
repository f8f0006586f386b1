"""The vocabulary in a GGUF file's key-values, checked.

Keys and token types are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.bundle import MAX_TEMPLATE_CHARS
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_TOKENS = 2**20
MAX_TOKEN_CHARS = 4096
MAX_SPECIAL_CHARS = 256

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<end_of_turn>",
    "<EOT>",
    "</s>",
)
"""Texts that end a turn wherever a model has them as control tokens."""


class Parts(msgspec.Struct, frozen=True):
    """The parts of a file of the `tokenizers` library that differ from kind to kind."""

    normalizer: dict[str, object] | None
    pre_tokenizer: dict[str, object] | None
    decoder: dict[str, object]
    model: dict[str, object]
    bos: bool
    """Whether texts begin with the leading token when the file does not say."""


class TokenizerKeys:
    """The keys under tokenizer.ggml, with their types checked."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata

    def get(self, key: str) -> object:
        """The value under tokenizer.ggml, or None."""
        return self._metadata.get(f"tokenizer.ggml.{key}")

    def text(self, key: str) -> str:
        """A short text; empty when there is none."""
        value = self.get(key)
        return value[:64] if isinstance(value, str) else ""

    def flag(self, key: str, default: bool) -> bool:
        """True or false, or the default."""
        value = self.get(key)
        return value if isinstance(value, bool) else default

    def texts(self, key: str, limit: int) -> list[str]:
        """A list of 1 to `limit` texts.

        Raises:
            ModelUnusable: it is no such list.
        """
        value = self.get(key)
        if not isinstance(value, list) or not 0 < len(value) <= limit:
            raise self.damaged(f"tokenizer.ggml.{key} is no list of 1 to {limit} texts")
        if not all(isinstance(text, str) and len(text) <= MAX_TOKEN_CHARS for text in value):
            raise self.damaged(f"tokenizer.ggml.{key} holds something that is no short text")
        return value

    def template(self) -> str | None:
        """The chat template.

        Raises:
            ModelUnusable: it is longer than any.
        """
        value = self._metadata.get("tokenizer.chat_template")
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > MAX_TEMPLATE_CHARS:
            raise self.damaged(f"its chat template is no text of {MAX_TEMPLATE_CHARS} characters")
        return value

    def damaged(self, what: str) -> ModelUnusable:
        """The error for a tokenizer of which `what` is wrong."""
        return ModelUnusable(f"the file's tokenizer is damaged: {what}; download the model again")


class Vocabulary:
    """Token texts and kinds by id."""

    def __init__(self, own: TokenizerKeys, *, byte_tokens: bool) -> None:
        self._own = own
        self.tokens = own.texts("tokens", MAX_TOKENS)
        if len(set(self.tokens)) != len(self.tokens):
            raise own.damaged("two of its tokens have the same text")
        kinds = own.get("token_type")
        if kinds is None:
            kinds = [NORMAL] * len(self.tokens)
        if not isinstance(kinds, list) or len(kinds) != len(self.tokens):
            raise own.damaged("it has not one token type for each token")
        known = (NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, *((BYTE,) if byte_tokens else ()))
        if any(kind not in known for kind in kinds):
            raise own.damaged("it has a token type that its kind of tokenizer does not have")
        self.kinds: list[int] = kinds

    def ids(self) -> dict[str, int]:
        """The ids of the tokens that are in use, by their texts."""
        return {
            text: token for token, text in enumerate(self.tokens) if self.kinds[token] != UNUSED
        }

    def named(self, key: str) -> int | None:
        """The id under a key, when there is one."""
        value = self._own.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise self._own.damaged(f"tokenizer.ggml.{key} {value!r} is no token")
        return value

    def short_text(self, token: int | None) -> str:
        """The text of a token that a template may write; none when there is no such token."""
        text = "" if token is None else self.tokens[token]
        if len(text) > MAX_SPECIAL_CHARS:
            raise self._own.damaged(
                f"token {token}, which begins or ends texts, has {len(text)} characters"
            )
        return text

    def special(self, token: int) -> bool:
        """Whether it is a mark of the model and no text."""
        return self.kinds[token] in (CONTROL, UNKNOWN)

    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn."""
        named = (self.named(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id"))
        ids = {token for token in named if token is not None}
        for token, text in enumerate(self.tokens):
            if text in END_OF_TURN and self.special(token):
                ids.add(token)
        return tuple(sorted(ids))

    def added(self) -> list[dict[str, object]]:
        """Tokens that are found in the text before it is cut, as the library has them."""
        return [
            {
                "id": token,
                "content": self.tokens[token],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": self.special(token),
            }
            for token, kind in enumerate(self.kinds)
            if kind in (CONTROL, UNKNOWN, USER_DEFINED)
        ]
