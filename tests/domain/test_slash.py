"""Commands typed beside questions."""

from __future__ import annotations

import pytest

from diffuse_core.domain.slash import Said, nearest, read


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What is it?", "What is it?"),
        ("//etc is a directory", "/etc is a directory"),
        ("/help", Said("help", "")),
        ("/Set temperature 1", Said("set", "temperature 1")),
        ("/system Be brief.\nAnd kind.", Said("system", "Be brief.\nAnd kind.")),
        ("/system\nBe brief.", Said("system", "Be brief.")),
        ("/", Said("", "")),
    ],
)
def test_a_slash_begins_a_command_and_two_a_question(text: str, found: Said | str) -> None:
    assert read(text) == found


def test_a_slip_is_forgiven_and_nonsense_is_not() -> None:
    assert nearest("sytem", ["system", "set"]) == "system"
    assert nearest("zzzz" * 1000, ["system", "set"]) is None
