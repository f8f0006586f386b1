"""What comes from the network is harmless on a terminal."""

from __future__ import annotations

from diffuse_core.domain.plain_text import clean, clean_line, shorten


def test_hostile_text_becomes_harmless() -> None:
    assert clean("a\x1b[2Jb\tc\r\nd\x9be\x7f\u202ef\ud800\u2028g") == "a␛[2Jb    c\nd�e␡f�\ng"
    assert clean_line("a\nb" + "x" * 600) == "a b" + "x" * 508 + "…"
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"
    assert shorten("abcd", 0) == "…"
