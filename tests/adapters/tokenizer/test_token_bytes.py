"""The bytes of single tokens: joined, they are those of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

from diffuse_core.adapters.tokenizer.token_bytes import TokenBytes
from tests.adapters.tokenizer.conftest import byte_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = byte_tokenizer()
BYTES = TokenBytes(PLAIN, PLAIN.to_str().encode(), {2: "<|im_end|>"})


@given(st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_text_is_made_of_its_tokens_bytes(text: str) -> None:
    ids = PLAIN.encode(text, add_special_tokens=False).ids
    if not {0, 1, 2} & set(ids):
        assert b"".join(BYTES.of(token) or b"?" for token in ids) == text.encode()


def test_every_byte_has_a_token() -> None:
    singles = {BYTES.of(token) for token in range(PLAIN.get_vocab_size())}
    assert {bytes([byte]) for byte in range(256)} <= singles


def test_special_tokens_have_the_bytes_of_their_name(load: Callable) -> None:
    tokenizer = load()
    assert tokenizer.token_bytes(2) == b"<|im_end|>"
    assert tokenizer.token_bytes(2**24) is None
    assert b"".join(tokenizer.token_bytes(t) for t in tokenizer.encode("é🙂")) == "é🙂".encode()


VOCABULARY = {"<0x41>": 0, "<0xF0>": 1, "▁the": 2, "re▁": 3, "<unk>": 4, "▁": 5}


def after_sentencepiece(*steps: object) -> TokenBytes:
    plain = Tokenizer(models.BPE(VOCABULARY, [], unk_token="<unk>", byte_fallback=True))
    plain.normalizer = normalizers.Prepend("▁")
    plain.decoder = decoders.Sequence(list(steps))
    return TokenBytes(plain, plain.to_str().encode(), {})


def test_pieces_have_spaces_and_single_bytes() -> None:
    expected = [b"A", b"\xf0", b" the", b"re ", b"<unk>", b" "]
    for spaces in (decoders.Replace("▁", " "), decoders.Metaspace()):
        known = after_sentencepiece(spaces, decoders.ByteFallback(), decoders.Fuse())
        assert [known.of(token) for token in range(6)] == expected
    without = after_sentencepiece(decoders.Replace("▁", " "))
    assert without.of(0) == b"<0x41>"


def test_what_a_tokenizer_does_not_tell_is_unknown() -> None:
    words = Tokenizer(models.WordPiece({"a": 0, "##b": 1}, unk_token="a"))
    for decoder in (decoders.WordPiece(), None):
        if decoder is not None:
            words.decoder = decoder
        assert TokenBytes(words, words.to_str().encode(), {}).of(1) is None
    odd = Tokenizer(models.WordLevel({"日": 0}, unk_token="日"))
    odd.decoder = decoders.ByteLevel()
    assert TokenBytes(odd, odd.to_str().encode(), {}).of(0) is None
