"""The tokenizer in a GGUF file's key-values as a bundle.

Keys and token types are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.bundle_files import check_tokenizer
from diffuse_core.adapters.models.gguf_byte_bpe import byte_bpe
from diffuse_core.adapters.models.gguf_score_bpe import score_bpe
from diffuse_core.adapters.models.gguf_vocabulary import TokenizerKeys, Vocabulary
from diffuse_core.domain.bundle import MAX_BUNDLE_BYTES, Bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from diffuse_core.adapters.models.gguf_vocabulary import Parts

_KINDS: dict[str, Callable[[TokenizerKeys, Vocabulary], Parts]] = {
    "gpt2": byte_bpe,
    "llama": score_bpe,
}
"""`tokenizer.ggml.model` → how it is read."""


def gguf_bundle(metadata: Mapping[str, object], context: int) -> Bundle:
    """The bundle of a GGUF file; `metadata` are its key-values, arrays as lists.

    The same key-values give the same bytes. `context` is in positions.

    Raises:
        ModelUnusable: no tokenizer, a damaged one, or one of a kind that is not proven.
    """
    keys = TokenizerKeys(metadata)
    kind = keys.text("model")
    read = _KINDS.get(kind)
    if read is None:
        raise ModelUnusable(
            f"the file's tokenizer is of the kind {kind!r}; supported are byte-level BPE "
            "('gpt2') and SentencePiece's BPE ('llama'): use another model, or its directory "
            "with tokenizer.json"
        )
    vocabulary = Vocabulary(keys, byte_tokens=kind == "llama")
    parts = read(keys, vocabulary)
    bos = vocabulary.named("bos_token_id")
    leads = bos is not None and keys.flag("add_bos_token", parts.bos)
    data = json.dumps(
        _tokenizer(vocabulary, parts, bos if leads else None),
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    if len(data) > MAX_BUNDLE_BYTES:
        raise keys.damaged(f"it takes more than {MAX_BUNDLE_BYTES} bytes")
    check_tokenizer(data, "the GGUF file")
    eos = vocabulary.named("eos_token_id")
    return Bundle(
        tokenizer_json=data,
        chat_template=keys.template(),
        stop_ids=vocabulary.stop_ids(),
        context=context,
        bos=vocabulary.short_text(bos),
        eos=vocabulary.short_text(eos),
    )


def _tokenizer(vocabulary: Vocabulary, parts: Parts, bos: int | None) -> dict[str, object]:
    """A file of the `tokenizers` library, version 1.0."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
        "normalizer": parts.normalizer,
        "pre_tokenizer": parts.pre_tokenizer,
        "post_processor": None if bos is None else _leading(vocabulary.tokens[bos], bos),
        "decoder": parts.decoder,
        "model": parts.model,
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
