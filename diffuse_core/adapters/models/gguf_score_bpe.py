"""SentencePiece's BPE from a GGUF file's key-values: no merges, but a score for every piece.

Of all neighbours that make a piece, those are merged first whose piece has the highest score
(sentencepiece: src/bpe_model.cc; llama.cpp: llm_tokenizer_spm). As merges that is: every way to
cut a piece in two, ordered by the piece's score, which is how `transformers` converts such a
model (convert_slow_tokenizer.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.gguf_vocabulary import NORMAL, UNKNOWN, Parts
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from diffuse_core.adapters.models.gguf_vocabulary import TokenizerKeys, Vocabulary

MAX_CUTS = 2**24
"""Ways to cut a vocabulary's pieces in two; the largest in the field have some millions."""

_SPACE = "\u2581"


def score_bpe(keys: TokenizerKeys, vocabulary: Vocabulary) -> Parts:
    """The parts of a tokenizer whose file has scores.

    Raises:
        ModelUnusable: it is damaged, or treats text in a way that is not proven.
    """
    if keys.get("precompiled_charsmap") or keys.flag("remove_extra_whitespaces", False):
        raise ModelUnusable(
            "the file's tokenizer rewrites text before it cuts it, which is not supported; use "
            "the model's directory with tokenizer.json"
        )
    ids = vocabulary.ids()
    missing = next((text for text in _BYTES if text not in ids), None)
    if missing is not None:
        raise keys.damaged(f"it has no token {missing} for characters that it does not know")
    # A leading space makes the first word of a text the same token as it is elsewhere.
    prefix = keys.flag("add_space_prefix", True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prepend: list[object] = [{"type": "Prepend", "prepend": _SPACE}] if prefix else []
    strip: list[object] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return Parts(
        normalizer={"type": "Sequence", "normalizers": [*prepend, replace]},
        pre_tokenizer=None,
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *(strip if prefix else []),
            ],
        },
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": _unknown(vocabulary),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": ids,
            "merges": _merges(_scored(keys, vocabulary), keys),
        },
        bos=True,
    )


_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def _unknown(vocabulary: Vocabulary) -> str | None:
    if UNKNOWN not in vocabulary.kinds:
        return None
    return vocabulary.tokens[vocabulary.kinds.index(UNKNOWN)]


def _scored(keys: TokenizerKeys, vocabulary: Vocabulary) -> dict[str, tuple[float, int]]:
    """Rank of every piece that merges may make: minus its score, then its id."""
    scores = keys.get("scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary.tokens):
        raise keys.damaged("it has not one score for each token")
    if not all(isinstance(score, float) and math.isfinite(score) for score in scores):
        raise keys.damaged("a score in it is no number")
    return {
        text: (-scores[token], token)
        for token, text in enumerate(vocabulary.tokens)
        if vocabulary.kinds[token] == NORMAL
    }


def _merges(ranks: dict[str, tuple[float, int]], keys: TokenizerKeys) -> list[list[str]]:
    if sum(map(len, ranks)) > MAX_CUTS:
        raise keys.damaged("its tokens are longer than those of any tokenizer")
    ranked = [
        (*rank, text[:cut], text[cut:])
        for text, rank in ranks.items()
        for cut in range(1, len(text))
        if text[:cut] in ranks and text[cut:] in ranks
    ]
    return [[left, right] for _, _, left, right in sorted(ranked)]
