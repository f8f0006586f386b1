"""Streams over tokenizers that cut characters into bytes, and that fall back to bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from diffuse_core.adapters.tokenizer.text_stream import (
    PATIENCE,
    WINDOW,
    StoppableStream,
    WholeCharacters,
)

BROKEN = "\ufffd"
TEXT = "Hello, wörld! 👩‍👩‍👧 says 日本語 and 😀😀😀 in a  double  space.\n\tdef f(x): return x**2"


def byte_level() -> Tokenizer:
    """Trained on little, so that its tokens end in the middle of characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<end>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, "日本 日語 本語 wörd 😀 👩 👧 hell world"], trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2 and Gemma do it: known words, bytes for all else, a space before the first."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    for word in ("▁", "▁a", "▁Hello", "b", "▁▁"):
        vocabulary[word] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


BYTES = byte_level()
FALLBACK = byte_fallback()
A, HELLO, B = (FALLBACK.token_to_id(word) for word in ("▁a", "▁Hello", "b"))


def pieces(tokenizer: Tokenizer, ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    stream = StoppableStream(tokenizer, frozenset(), stop)
    return [*(stream.push(token) for token in ids), stream.flush()]


# At the end of an answer U+FFFD itself is taken for a character that was cut short.
@given(st.text().filter(lambda t: not t.endswith(BROKEN)) | st.sampled_from([TEXT, TEXT * 4]))
def test_what_is_streamed_is_the_text_and_never_half_a_character(text: str) -> None:
    given_ids = BYTES.encode(text).ids
    shown = pieces(BYTES, given_ids)
    assert "".join(shown) == text
    if BROKEN not in text:
        assert not any(BROKEN in piece for piece in shown)


def test_text_comes_as_soon_as_it_is_certain() -> None:
    ids = BYTES.encode("a€b").ids
    shown = pieces(BYTES, ids)
    assert len(ids) > 3
    assert shown[0] == "a"
    assert shown[-2] == "b"


@given(st.lists(st.integers(0, 255), max_size=300))
def test_any_bytes_give_what_decoding_them_gives_but_for_a_broken_end(values: list[int]) -> None:
    alphabet = [BYTES.token_to_id(char) for char in sorted(pre_tokenizers.ByteLevel.alphabet())]
    ids = [alphabet[value] for value in values]
    shown, whole = "".join(pieces(BYTES, ids)), BYTES.decode(ids)
    assert whole.startswith(shown)
    assert not whole[len(shown) :].strip(BROKEN)


@given(st.text(alphabet="a日本語😀é🙂", max_size=100), st.booleans())
def test_bytes_that_stand_in_for_characters_are_never_shown_broken(text: str, word: bool) -> None:
    """While one is incomplete, the decoder shows the whole row of bytes as broken."""
    ids = [HELLO if word else A, *text.encode(), B]
    shown = pieces(FALLBACK, ids)
    assert "".join(shown) == FALLBACK.decode(ids)
    assert not any(BROKEN in piece for piece in shown)


def test_a_space_before_the_first_word_is_dropped_and_others_are_kept() -> None:
    ids = [HELLO] * (3 * WINDOW)
    assert pieces(FALLBACK, ids)[:2] == ["Hello", " Hello"]
    assert "".join(pieces(FALLBACK, ids)) == FALLBACK.decode(ids)


def test_bytes_that_make_no_character_are_shown_in_the_end() -> None:
    stream = WholeCharacters(FALLBACK)
    shown = [stream.push(0xFF) for _ in range(2 * PATIENCE)]
    assert shown[:PATIENCE] == [""] * PATIENCE
    assert BROKEN in "".join(shown)
    assert stream.push(A).endswith("a")


def test_a_character_that_was_cut_off_is_not_shown() -> None:
    emoji = BYTES.encode("🙂").ids
    assert "".join(pieces(BYTES, [*BYTES.encode("ab").ids, *emoji[:-1]])) == "ab"


def test_what_a_token_costs_does_not_grow() -> None:
    class Counting:
        longest = 0
        calls = 0

        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            self.longest = max(self.longest, len(ids))
            self.calls += 1
            return BYTES.decode(ids, skip_special_tokens)

    counting = Counting()
    ids = BYTES.encode(TEXT * 50).ids + [BYTES.token_to_id("Ń")] * 500
    stream = WholeCharacters(counting)
    for token in ids:
        stream.push(token)
    assert counting.longest <= 2 * WINDOW
    assert counting.calls < 1.3 * len(ids)


def test_special_tokens_and_unknown_ids_show_nothing() -> None:
    end = BYTES.token_to_id("<end>")
    stream = StoppableStream(BYTES, frozenset({end}), ())
    first, second = BYTES.encode("xy").ids
    assert [stream.push(token) for token in (first, end, 2**24, second)] == ["x", "", "", "y"]


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("say stop now", ("stop",), "say "),
        ("say stop now", ("absent",), "say stop now"),
        ("one\n\nUser: two", ("\nUser:",), "one\n"),
        ("ababac and on", ("abac",), "ab"),
        ("x then y then z", ("then z", "then y"), "x "),
        ("the end", ("end",), "the "),
        ("the en", ("end",), "the en"),
        ("stop", ("stop",), ""),
        ("日本語です", ("語",), "日本"),
        ("anything", ("",), "anything"),
    ],
)
def test_text_ends_before_a_stop_string(text: str, stop: tuple[str, ...], kept: str) -> None:
    stream = StoppableStream(BYTES, frozenset(), stop)
    shown = "".join(stream.push(token) for token in BYTES.encode(text).ids)
    assert stream.stopped == (kept != text)
    assert shown + stream.flush() == kept


def test_nothing_comes_after_a_stop_string() -> None:
    stream = StoppableStream(BYTES, frozenset(), ("b",))
    shown = [stream.push(token) for token in BYTES.encode("a b c").ids]
    assert "".join(shown) == "a "
    assert stream.stopped
    assert stream.push(BYTES.encode("c").ids[0]) == ""
    assert stream.flush() == ""


@given(
    st.text(alphabet="ab", max_size=40),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=3),
    st.integers(0, 2**32),
)
def test_no_part_of_a_stop_string_is_ever_shown(text: str, stop: list[str], seed: int) -> None:
    """However the text is cut into tokens, the stop string that is complete first ends it."""
    cuts = random.Random(seed)

    class Cutting:
        """Each id stands for a part of the text."""

        def __init__(self) -> None:
            self.parts: list[str] = []
            rest = text
            while rest:
                length = cuts.randint(1, 4)
                self.parts.append(rest[:length])
                rest = rest[length:]

        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            return "".join(self.parts[token] for token in ids)

    decoder = Cutting()
    stream = StoppableStream(decoder, frozenset(), stop)
    shown = ""
    for token in range(len(decoder.parts)):
        shown += stream.push(token)
        assert not any(word in shown for word in stop)
    shown += stream.flush()
    ends = [(text.index(word) + len(word), text.index(word)) for word in stop if word in text]
    assert shown == (text[: min(ends)[1]] if ends else text)
    assert stream.stopped == bool(ends)


def test_it_tells_how_much_is_held_back() -> None:
    stream = StoppableStream(BYTES, frozenset(), ("bcX",))
    held = []
    for char in "abcbd":
        stream.push(BYTES.token_to_id(char))
        held.append(stream.held)
    assert held == [0, 1, 2, 1, 0]
