"""SentencePiece's BPE in GGUF files, against its algorithm written down plainly."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models, trainers

from diffuse_core.adapters.models import gguf_score_bpe
from diffuse_core.adapters.models.gguf_tokenizer import gguf_bundle
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.view import ChatMessage
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from diffuse_core.domain.bundle import Bundle

CORPUS = [
    "the theatre there is other than that of the weather, whether here or there",
    "in the beginning was the word; banana bandana, Mississippi  two spaces",
    "def f(x):\n    return x ** 2\n\nnaïve café",
]
TEXTS = [
    *CORPUS,
    "",
    " ",
    "  a",
    "the",
    " the ",
    "banana\n\nbandana\t",
    "日本 🙂 unknown ½",
    "ananananas thetheatrethe",
]
FIRST = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
BYTES = [(f"<0x{byte:02X}>", 6) for byte in range(256)]


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    """As llama.cpp's converter writes it for a Llama 2."""
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=220, show_progress=False)
    trained.train_from_iterator([text.replace(" ", "\u2581") for text in CORPUS], trainer)
    pieces = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    merged = [text for text, _ in pieces if len(text) > 1]
    # As SentencePiece has it: merges in their order, single characters last, and scores falling.
    texts = merged + [text for text, _ in pieces if len(text) == 1]
    tokens = [*FIRST, *BYTES, ("<|user|>", 4), *((text, 1) for text in texts)]
    scores = [0.0] * (len(tokens) - len(texts)) + [-float(rank) for rank in range(len(texts))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": "{{ bos_token }}[INST] {{ messages[0]['content'] }} [/INST]",
    }


def plainly(text: str, metadata: dict) -> list[int]:
    """Merge the neighbours that make the piece of the highest score, the leftmost among equals."""
    ids = {text: token for token, text in enumerate(metadata["tokenizer.ggml.tokens"])}
    kinds, scores = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.scores"]
    symbols = list("\u2581" + text.replace(" ", "\u2581")) if text else []
    while True:
        made = [
            (-scores[ids[a + b]], at)
            for at, (a, b) in enumerate(itertools.pairwise(symbols))
            if a + b in ids and kinds[ids[a + b]] == 1
        ]
        if not made:
            break
        at = min(made)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    tokens = []
    for symbol in symbols:
        if symbol in ids:
            tokens.append(ids[symbol])
        else:
            tokens += [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return tokens


def built(bundle: Bundle) -> Tokenizer:
    return Tokenizer.from_buffer(bundle.tokenizer_json)


def test_texts_are_cut_as_by_sentencepiece(metadata: dict) -> None:
    made = built(gguf_bundle(metadata, 64))
    rng = random.Random(7)
    some = ["".join(rng.choices(" theanbdo.\n日", k=rng.randint(1, 40))) for _ in range(300)]
    merged = 0
    for text in (*TEXTS, *some):
        ids = made.encode(text, add_special_tokens=False).ids
        assert ids == plainly(text, metadata), text
        assert made.decode(ids) == text
        merged += sum(token >= 260 and len(made.id_to_token(token)) > 1 for token in ids)
    assert merged > 500


def test_texts_begin_with_the_leading_token_unless_the_file_says_no(metadata: dict) -> None:
    assert built(gguf_bundle(metadata, 64)).encode("the").ids[0] == 1
    changed = metadata | {"tokenizer.ggml.add_bos_token": False}
    assert built(gguf_bundle(changed, 64)).encode("the").ids[0] != 1


def test_a_file_may_do_without_the_leading_space(metadata: dict) -> None:
    changed = metadata | {"tokenizer.ggml.add_space_prefix": False}
    made = built(gguf_bundle(changed, 64))
    tokens = made.encode(" the", add_special_tokens=False).tokens
    assert "".join(tokens) == "\u2581the"
    assert "".join(made.encode("the", add_special_tokens=False).tokens) == "the"
    assert made.decode(made.encode(" the").ids) == " the"


def test_marks_are_found_in_the_text_and_pieces_never_make_them(metadata: dict) -> None:
    bundle = gguf_bundle(metadata, 64)
    made = built(bundle)
    ids = made.encode("<s>the<|user|>there</s>", add_special_tokens=False).ids
    assert ids[0] == 1
    assert ids[-1] == 2
    assert 259 in ids
    assert made.decode(ids) == "the<|user|> there"
    assert (bundle.stop_ids, bundle.bos, bundle.eos) == ((2,), "<s>", "</s>")


def test_merges_make_no_mark_and_no_byte(metadata: dict) -> None:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert {"t", "h"} <= set(tokens)  # both halves are pieces, what they make is a mark
    changed = metadata | {"tokenizer.ggml.tokens": [tokens[0], "th\u2581h", *tokens[2:]]}
    model = json.loads(gguf_bundle(changed, 64).tokenizer_json)["model"]
    made = {left + right for left, right in model["merges"]}
    normal = {text for text, kind in zip(tokens, kinds, strict=True) if kind == 1}
    assert made <= normal
    assert len(made) > 50


def test_a_chat_and_an_answer_that_comes_token_by_token(metadata: dict) -> None:
    tokenizer = load_tokenizer(gguf_bundle(metadata, 64))
    ids = tokenizer.encode_chat([ChatMessage("user", "the theatre")])
    assert ids[0] == 1
    stream = tokenizer.stream(())
    answer = "the weather 🙂 is naïve"
    said = [stream.push(token) for token in tokenizer.encode(answer)]
    assert "".join(said) + stream.flush() == answer
    assert not any("\ufffd" in part for part in said)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scores": None}, "one score for each"),
        ({"scores": [0.0]}, "one score for each"),
        ({"scores": "x"}, "one score for each"),
        ({"precompiled_charsmap": [1, 2]}, "rewrites text"),
        ({"remove_extra_whitespaces": True}, "rewrites text"),
        ({"add_bos_token": True, "bos_token_id": 10**6}, "bos_token_id"),
    ],
)
def test_what_is_damaged_or_not_supported_is_named(
    metadata: dict, changes: dict[str, object], told: str
) -> None:
    changed = metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(ModelUnusable, match=re.escape(told)):
        gguf_bundle(changed, 64)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1", None])
def test_a_score_that_is_no_number_is_refused(metadata: dict, score: object) -> None:
    scores = [*metadata["tokenizer.ggml.scores"][:-1], score]
    with pytest.raises(ModelUnusable, match="a score in it is no number"):
        gguf_bundle(metadata | {"tokenizer.ggml.scores": scores}, 64)


def test_bytes_are_all_there(metadata: dict) -> None:
    tokens = [text.replace("<0x41>", "A?") for text in metadata["tokenizer.ggml.tokens"]]
    with pytest.raises(ModelUnusable, match="no token <0x41>"):
        gguf_bundle(metadata | {"tokenizer.ggml.tokens": tokens}, 64)


def test_a_vocabulary_that_would_take_for_ever_is_refused(
    metadata: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_score_bpe, "MAX_CUTS", 100)
    with pytest.raises(ModelUnusable, match="longer than those of any"):
        gguf_bundle(metadata, 64)


def test_a_model_without_an_unknown_token_needs_none(metadata: dict) -> None:
    kinds = [3, *metadata["tokenizer.ggml.token_type"][1:]]
    made = built(gguf_bundle(metadata | {"tokenizer.ggml.token_type": kinds}, 64))
    assert made.decode(made.encode("the 🙂").ids) == "the 🙂"


def test_the_same_file_gives_the_same_bytes(metadata: dict) -> None:
    assert gguf_bundle(metadata, 64) == gguf_bundle(dict(reversed(metadata.items())), 64)
