"""Byte-level BPE from a GGUF file's key-values.

How text is cut before the merges is only named in the file (`tokenizer.ggml.pre`); the cuts
themselves are those of the models' own tokenizer.json files, which llama.cpp follows
(src/llama-vocab.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.gguf_vocabulary import Parts
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from diffuse_core.adapters.models.gguf_vocabulary import TokenizerKeys, Vocabulary

MAX_MERGES = 2**21

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


def byte_bpe(keys: TokenizerKeys, vocabulary: Vocabulary) -> Parts:
    """The parts of a tokenizer whose file has merges.

    Raises:
        ModelUnusable: it is damaged, or cuts text in a way that is not known.
    """
    cut = _cut(keys)
    merges = [merge.split(" ") for merge in keys.texts("merges", MAX_MERGES)]
    if any(len(pair) != 2 for pair in merges):
        raise keys.damaged("a merge in it is not of two tokens")
    return Parts(
        normalizer={"type": "NFC"} if cut.compose else None,
        pre_tokenizer={"type": "Sequence", "pretokenizers": list(cut.steps)},
        decoder=_bytes(True),
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": cut.whole_words,
            "vocab": vocabulary.ids(),
            "merges": merges,
        },
        bos=cut.bos,
    )


def _cut(keys: TokenizerKeys) -> _Cut:
    name = keys.text("pre")
    cut = CUTS.get(name)
    if cut is None:
        told = f"cuts text in the way {name!r}" if name else "does not say how it cuts text"
        raise ModelUnusable(
            f"the file's tokenizer {told} (tokenizer.ggml.pre); supported are {', '.join(CUTS)}: "
            "use another file, or the model's directory with tokenizer.json"
        )
    return cut
