"""Tokenizers from GGUF key-values, against the same ones built by the library itself."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, processors, trainers
from tokenizers import decoders as dec
from tokenizers import models as mod
from tokenizers import pre_tokenizers as pre

from diffuse_core.adapters.models import gguf_tokenizer
from diffuse_core.adapters.models.gguf_byte_bpe import CUTS
from diffuse_core.adapters.models.gguf_header import read_gguf_header
from diffuse_core.adapters.models.gguf_tokenizer import gguf_bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CORPUS = [
    "The year 1984 and 2024's 12345 numbers; we've DON'T I'LL a 3.14159 b.",
    "def f(x):\n    return x ** 2\n\n\n# 日本語 の テキスト, naïve café cafe\u0301\r\n",
    "  two  spaces\tand\ttabs   \n 🙂👩‍👩‍👧 العربية 한국어 $100+5=105 a<b>c|d~e^f",
]
TEXTS = (
    *CORPUS,
    "",
    " ",
    "\n\n",
    "Hello<|im_end|>\n<|im_start|>user\n",
    "I'LL don'T 're 42 1,000,000 ½ x²  \r\n\r\n end \u00a0 e\u0301 ﬁ",
    "".join(map(chr, range(32, 0x600))),
)
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST


def cut_by(pattern: str) -> pre.PreTokenizer:
    return pre.Sequence(
        [pre.Split(Regex(pattern), "isolated"), pre.ByteLevel(False, use_regex=False)]
    )


ORIGINALS = {
    "gpt-2": pre.ByteLevel(add_prefix_space=False),
    "smollm": pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(False)]),
    "llama-bpe": cut_by(LLAMA3),
    "qwen2": cut_by(QWEN2),
}
"""The pre-tokenizers of the models' own tokenizer.json files."""


def original(cut: str) -> Tokenizer:
    tokenizer = Tokenizer(mod.BPE(ignore_merges=cut == "llama-bpe"))
    tokenizer.pre_tokenizer = ORIGINALS[cut]
    tokenizer.decoder = dec.ByteLevel()
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def as_gguf(tokenizer: Tokenizer, cut: str) -> dict[str, object]:
    """The key-values that llama.cpp's converter writes for a tokenizer."""
    count = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(token) for token in range(count)]
    kinds = [3 if text in SPECIAL else 4 if text == "<think>" else 1 for text in tokens]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    return as_gguf(original("smollm"), "smollm")


def built(bundle: Bundle) -> Tokenizer:
    return Tokenizer.from_buffer(bundle.tokenizer_json)


@pytest.mark.parametrize("cut", sorted(ORIGINALS))
def test_texts_are_cut_as_by_the_original(cut: str) -> None:
    tokenizer = original(cut)
    made = built(gguf_bundle(as_gguf(tokenizer, cut), 64))
    for text in TEXTS:
        assert made.encode(text).tokens == tokenizer.encode(text).tokens
        ids = tokenizer.encode(text).ids
        assert made.decode(ids) == tokenizer.decode(ids)


def test_the_cuts_differ() -> None:
    """Else the test above would prove little."""
    pieces = {
        cut: [piece for piece, _ in original(cut).pre_tokenizer.pre_tokenize_str("a\n\n12345")]
        for cut in ORIGINALS
    }
    assert pieces == {
        "gpt-2": ["a", "Ċ", "Ċ", "12345"],
        "smollm": ["a", "ĊĊ", "1", "2", "3", "4", "5"],
        "llama-bpe": ["a", "ĊĊ", "123", "45"],
        "qwen2": ["a", "ĊĊ", "1", "2", "3", "4", "5"],
    }


def test_the_default_cut_is_that_of_llama_cpp(metadata: dict) -> None:
    made = built(gguf_bundle(metadata | {"tokenizer.ggml.pre": "default"}, 64))
    pieces = [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str("it's $5+12345 ok!? x")]
    assert pieces == ["it", "'", "s", "Ġ", "$", "5", "+", "123", "45", "Ġok", "!?", "Ġx"]


def test_the_bundle_says_what_ends_a_turn(metadata: dict) -> None:
    bundle = gguf_bundle(metadata, 64)
    assert bundle.stop_ids == (0, 2)  # <|endoftext|> by its text, <|im_end|> by both
    assert (bundle.bos, bundle.eos, bundle.context) == ("<|im_start|>", "<|im_end|>", 64)
    assert bundle.chat_template == "{{ messages[0]['content'] }}"
    more = gguf_bundle(metadata | {"tokenizer.ggml.eot_token_id": 7}, 64)
    assert more.stop_ids == (0, 2, 7)
    kinds = [4, 3, 4, *metadata["tokenizer.ggml.token_type"][3:]]
    fewer = gguf_bundle(metadata | {"tokenizer.ggml.token_type": kinds}, 64)
    assert fewer.stop_ids == (2,)  # text in what people write ends no turn


def test_the_same_file_gives_the_same_bytes(metadata: dict) -> None:
    assert gguf_bundle(metadata, 64) == gguf_bundle(dict(reversed(metadata.items())), 64)


def test_control_tokens_are_special_and_others_are_not(metadata: dict) -> None:
    made = built(gguf_bundle(metadata, 64))
    ids = made.encode("a<|im_end|><think>b").ids
    assert made.decode(ids) == "a<think>b"
    assert made.decode(ids, skip_special_tokens=False) == "a<|im_end|><think>b"


@pytest.mark.parametrize(
    ("cut", "flag", "leading"),
    [
        ("smollm", True, True),
        ("smollm", None, False),
        ("llama3", None, True),
        ("llama-bpe", False, False),
    ],
)
def test_texts_begin_as_the_file_says(
    metadata: dict, cut: str, flag: bool | None, leading: bool
) -> None:
    changed = metadata | {"tokenizer.ggml.pre": cut, "tokenizer.ggml.add_bos_token": flag}
    made = built(gguf_bundle(changed, 64))
    assert (made.encode("a").ids[0] == 1) == leading
    assert made.encode("a", add_special_tokens=False).ids == [made.token_to_id("a")]


def test_a_model_without_a_leading_token_gets_none(metadata: dict) -> None:
    changed = metadata | {"tokenizer.ggml.pre": "llama3", "tokenizer.ggml.bos_token_id": None}
    changed |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.eos_token_id": None}
    bundle = gguf_bundle(changed, 64)
    assert (bundle.bos, bundle.eos, bundle.stop_ids) == ("", "", (0, 2))
    assert len(built(bundle).encode("a").ids) == 1


def test_unused_tokens_are_left_out(metadata: dict) -> None:
    tokens = [*metadata["tokenizer.ggml.tokens"], "[PAD]"]
    kinds = [*metadata["tokenizer.ggml.token_type"], 5]
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    made = built(gguf_bundle(metadata | changed, 64))
    assert made.token_to_id("[PAD]") is None
    assert made.decode([len(tokens) - 1]) == ""


@pytest.mark.parametrize("cut", sorted(CUTS))
def test_every_cut_in_the_table_can_be_used(metadata: dict, cut: str) -> None:
    made = built(gguf_bundle(metadata | {"tokenizer.ggml.pre": cut}, 64))
    text = "x = 10 日本\n"
    assert made.decode(made.encode(text, add_special_tokens=False).ids) == text


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model", "t5", "kind 't5'"),
        ("model", None, "kind ''"),
        ("pre", "viking", "'viking'"),
        ("pre", None, "does not say"),
        ("pre", 5, "does not say"),
        ("tokens", None, "tokens is no list"),
        ("tokens", [], "tokens is no list"),
        ("tokens", ["a", 5], "no short text"),
        ("tokens", ["a" * 5000], "no short text"),
        ("tokens", ["a", "a"], "same text"),
        ("token_type", [1], "one token type for each"),
        ("token_type", "3", "one token type for each"),
        ("merges", None, "merges is no list"),
        ("merges", ["ab"], "not of two"),
        ("merges", ["a b c"], "not of two"),
        ("merges", ["a 🙂"], "cannot be read"),
        ("bos_token_id", 10**6, "bos_token_id"),
        ("eos_token_id", -1, "eos_token_id"),
        ("eot_token_id", "2", "eot_token_id"),
    ],
)
def test_damaged_key_values_are_named(metadata: dict, key: str, value: object, told: str) -> None:
    with pytest.raises(ModelUnusable, match=re.escape(told)):
        gguf_bundle(metadata | {f"tokenizer.ggml.{key}": value}, 64)


def test_a_token_type_that_does_not_belong_is_refused(metadata: dict) -> None:
    kinds = [*metadata["tokenizer.ggml.token_type"][:-1], 6]
    with pytest.raises(ModelUnusable, match="token type"):
        gguf_bundle(metadata | {"tokenizer.ggml.token_type": kinds}, 64)


@pytest.mark.parametrize("template", ["x" * 200_001, 5, ["x"]])
def test_a_template_out_of_bounds_is_refused(metadata: dict, template: object) -> None:
    with pytest.raises(ModelUnusable, match="chat template"):
        gguf_bundle(metadata | {"tokenizer.chat_template": template}, 64)


def test_a_model_without_template_has_none(metadata: dict) -> None:
    assert gguf_bundle(metadata | {"tokenizer.chat_template": None}, 64).chat_template is None


def test_a_leading_token_longer_than_a_bundle_takes_is_refused(
    metadata: dict,
) -> None:
    tokens = [
        text.replace("<|im_start|>", "x" * 257) for text in metadata["tokenizer.ggml.tokens"]
    ]
    with pytest.raises(ModelUnusable, match="257 characters"):
        gguf_bundle(metadata | {"tokenizer.ggml.tokens": tokens}, 64)


def test_a_vocabulary_larger_than_a_bundle_takes_is_refused(
    metadata: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_tokenizer, "MAX_BUNDLE_BYTES", 1000)
    with pytest.raises(ModelUnusable, match="more than 1000 bytes"):
        gguf_bundle(metadata, 64)


def test_without_token_types_all_are_normal(metadata: dict) -> None:
    bundle = gguf_bundle(metadata | {"tokenizer.ggml.token_type": None}, 64)
    assert built(bundle).get_added_tokens_decoder() == {}
    assert bundle.stop_ids == (2,)


def test_two_texts_have_one_leading_token(metadata: dict) -> None:
    made = built(gguf_bundle(metadata | {"tokenizer.ggml.add_bos_token": True}, 64))
    assert isinstance(made.post_processor, processors.TemplateProcessing)
    assert made.encode("a", "b").ids.count(1) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_models_tokenizer_is_the_original(demo_gguf: Path) -> None:
    """`transformers` reads the vocabulary by code of its own, but forgets to part digits."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name)
    theirs.backend_tokenizer.pre_tokenizer = ORIGINALS["smollm"]
    bundle = gguf_bundle(read_gguf_header(demo_gguf).metadata, 8192)
    made = built(bundle)
    assert made.get_vocab_size() == 49152
    assert (bundle.stop_ids, bundle.eos) == ((0, 2), "<|im_end|>")
    # Known ids of the published tokenizer.
    assert made.encode("<|im_start|>user\nHi<|im_end|>").ids[:3] == [1, 4093, 198]
    samples = [*TEXTS, "".join(map(chr, range(0x3000, 0x3400))), "x" * 500, "1" * 50]
    for text in samples:
        assert made.encode(text).ids == theirs(text)["input_ids"]
        assert made.decode(made.encode(text).ids, skip_special_tokens=False) == text
