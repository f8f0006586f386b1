"""The tokenizer in a GGUF file's key-values as a bundle.

Keys and token types are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. How
text is cut before the merges is only named in the file (`tokenizer.ggml.pre`); the cuts themselves
are those of the models' own tokenizer.json files, which llama.cpp follows (src/llama-vocab.cpp).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.bundle_files import check_tokenizer
from diffuse_core.domain.bundle import MAX_BUNDLE_BYTES, MAX_TEMPLATE_CHARS, Bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_TOKENS = 2**20
MAX_MERGES = 2**21
MAX_TOKEN_CHARS = 4096
MAX_SPECIAL_CHARS = 256

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_KINDS = (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED)

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

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_AFTER_LETTERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = _SHORT + r"|\p{N}{1,3}" + _AFTER_LETTERS
_QWEN2 = _SHORT + r"|\p{N}" + _AFTER_LETTERS


class _Cut(msgspec.Struct, frozen=True):
    """How one family cuts text: steps of the pre-tokenizer, and what goes with them."""

    steps: tuple[dict[str, object], ...]
    compose: bool = False
    whole_words: bool = False
    bos: bool = False


def _split(pattern: str) -> dict[str, object]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _bytes(regex: bool) -> dict[str, object]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": regex,
    }


_DIGITS: dict[str, object] = {"type": "Digits", "individual_digits": True}
_LLAMA3_CUT = _Cut((_split(_LLAMA3), _bytes(False)), whole_words=True, bos=True)
_STARCODER_CUT = _Cut((_DIGITS, _bytes(True)))

CUTS: dict[str, _Cut] = {
    "default": _Cut(
        (
            _split(r"[\p{P}\$\+<=>\^~\|]+"),
            _split(_GPT2),
            _split(r"\p{N}+"),
            _split("[0-9][0-9][0-9]"),
            _bytes(False),
        )
    ),
    "gpt-2": _Cut((_bytes(True),)),
    "smollm": _STARCODER_CUT,
    "starcoder": _STARCODER_CUT,
    "llama-bpe": _LLAMA3_CUT,
    "llama-v3": _LLAMA3_CUT,
    "llama3": _LLAMA3_CUT,
    "qwen2": _Cut((_split(_QWEN2), _bytes(False)), compose=True),
}
"""`tokenizer.ggml.pre` → how text is cut."""


def gguf_bundle(metadata: Mapping[str, object], context: int) -> Bundle:
    """The bundle of a GGUF file; `metadata` are its key-values, arrays as lists.

    The same key-values give the same bytes. `context` is in positions.

    Raises:
        ModelUnusable: no tokenizer, a damaged one, or one of a kind that is not proven.
    """
    own = _Own(metadata)
    kind = own.text("model")
    if kind != "gpt2":
        raise ModelUnusable(
            f"the file's tokenizer is of the kind {kind!r}; only byte-level BPE ('gpt2') is "
            "supported: use another model, or its directory with tokenizer.json"
        )
    vocabulary = _Vocabulary(own)
    cut = _cut(own)
    bos = vocabulary.named("bos_token_id")
    wants_bos = own.flag("add_bos_token", cut.bos) and bos is not None
    data = json.dumps(
        _tokenizer(vocabulary, own, cut, bos if wants_bos else None),
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    if len(data) > MAX_BUNDLE_BYTES:
        raise own.damaged(f"it takes more than {MAX_BUNDLE_BYTES} bytes")
    check_tokenizer(data, "the GGUF file")
    eos = vocabulary.named("eos_token_id")
    return Bundle(
        tokenizer_json=data,
        chat_template=own.template(),
        stop_ids=vocabulary.stop_ids(),
        context=context,
        bos=vocabulary.short_text(bos),
        eos=vocabulary.short_text(eos),
    )


def _cut(own: _Own) -> _Cut:
    name = own.text("pre")
    cut = CUTS.get(name)
    if cut is None:
        told = f"cuts text in the way {name!r}" if name else "does not say how it cuts text"
        raise ModelUnusable(
            f"the file's tokenizer {told} (tokenizer.ggml.pre); supported are {', '.join(CUTS)}: "
            "use another file, or the model's directory with tokenizer.json"
        )
    return cut


class _Own:
    """The keys under tokenizer.ggml, with their types checked."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata

    def get(self, key: str) -> object:
        return self._metadata.get(f"tokenizer.ggml.{key}")

    def text(self, key: str) -> str:
        value = self.get(key)
        return value[:64] if isinstance(value, str) else ""

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        return value if isinstance(value, bool) else default

    def texts(self, key: str, limit: int) -> list[str]:
        value = self.get(key)
        if not isinstance(value, list) or not 0 < len(value) <= limit:
            raise self.damaged(f"tokenizer.ggml.{key} is no list of 1 to {limit} texts")
        if not all(isinstance(text, str) and len(text) <= MAX_TOKEN_CHARS for text in value):
            raise self.damaged(f"tokenizer.ggml.{key} holds something that is no short text")
        return value

    def template(self) -> str | None:
        value = self._metadata.get("tokenizer.chat_template")
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > MAX_TEMPLATE_CHARS:
            raise self.damaged(f"its chat template is no text of {MAX_TEMPLATE_CHARS} characters")
        return value

    def damaged(self, what: str) -> ModelUnusable:
        return ModelUnusable(f"the file's tokenizer is damaged: {what}; download the model again")


class _Vocabulary:
    """Token texts and kinds by id."""

    def __init__(self, own: _Own) -> None:
        self._own = own
        self.tokens = own.texts("tokens", MAX_TOKENS)
        if len(set(self.tokens)) != len(self.tokens):
            raise own.damaged("two of its tokens have the same text")
        kinds = own.get("token_type")
        if kinds is None:
            kinds = [_NORMAL] * len(self.tokens)
        if not isinstance(kinds, list) or len(kinds) != len(self.tokens):
            raise own.damaged("it has not one token type for each token")
        if any(kind not in _KINDS for kind in kinds):
            raise own.damaged("it has a token type that byte-level BPE does not have")
        self.kinds: list[int] = kinds

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
        return self.kinds[token] in (_CONTROL, _UNKNOWN)

    def stop_ids(self) -> tuple[int, ...]:
        named = (self.named(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id"))
        ids = {token for token in named if token is not None}
        for token, text in enumerate(self.tokens):
            if text in END_OF_TURN and self.special(token):
                ids.add(token)
        return tuple(sorted(ids))

    def added(self) -> list[dict[str, object]]:
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
            if kind in (_CONTROL, _UNKNOWN, _USER_DEFINED)
        ]


def _tokenizer(
    vocabulary: _Vocabulary, own: _Own, cut: _Cut, bos: int | None
) -> dict[str, object]:
    """A file of the `tokenizers` library, version 1.0."""
    merges = [merge.split(" ") for merge in own.texts("merges", MAX_MERGES)]
    if any(len(pair) != 2 for pair in merges):
        raise own.damaged("a merge in it is not of two tokens")
    used = {
        text: token
        for token, text in enumerate(vocabulary.tokens)
        if vocabulary.kinds[token] != _UNUSED
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
        "normalizer": {"type": "NFC"} if cut.compose else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(cut.steps)},
        "post_processor": None if bos is None else _leading(vocabulary.tokens[bos], bos),
        "decoder": _bytes(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": cut.whole_words,
            "vocab": used,
            "merges": merges,
        },
    }


def _leading(text: str, token: int) -> dict[str, object]:
    """A post-processor that puts one token before the text."""
    special = {"SpecialToken": {"id": text, "type_id": 0}}
    single = [special, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {text: {"id": text, "ids": [token], "tokens": [text]}},
    }
