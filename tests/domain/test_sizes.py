from __future__ import annotations

import pytest

from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("150MiB", 150 * 2**20),
        ("2GB", 2 * 10**9),
        (" 2 GB ", 2 * 10**9),
        ("1.5g", 3 * 2**29),
        ("1.5GiB", 3 * 2**29),
        ("500MB", 500 * 10**6),
        ("4194304", 2**22),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no size; write e.g. 150MiB or 2GiB"),
        ("-5GB", "is no size"),
        ("many", "is no size"),
        ("150", "did you mean 150MiB?"),
        ("3 kB", "no useful size, e.g. 150MiB"),
        ("999999 TiB", "no useful size"),
    ],
)
def test_what_is_no_size_is_refused_with_an_example(text: str, told: str) -> None:
    with pytest.raises(UsageError, match="size") as refused:
        parse_size(text)
    assert told in str(refused.value)
