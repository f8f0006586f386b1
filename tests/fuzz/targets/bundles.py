"""Tokenizer bundles whose digest a hostile host signed."""

from __future__ import annotations

import random

from diffuse_core.domain.bundle import Bundle, bundle_digest, encode_bundle, open_bundle
from diffuse_core.errors import ModelUnusable
from tests.fuzz.valid_values import ValidValues


def target(data: bytes) -> str:
    """What opens is encoded to what opens as the same; the wrong digest opens nothing."""
    try:
        bundle = open_bundle(data, bundle_digest(data))
    except ModelUnusable:
        return "refused"
    again = encode_bundle(bundle)
    assert open_bundle(again, bundle_digest(again)) == bundle
    try:
        open_bundle(data + b"\x00", bundle_digest(data))
    except ModelUnusable:
        return "opened"
    raise AssertionError("a bundle with another digest was opened")


def samples() -> dict[str, bytes]:
    """A few bundles."""
    values = ValidValues(random.Random(7), generous=9)
    found = {f"bundle-{number}": encode_bundle(values.make(Bundle)) for number in range(4)}
    # Deeper than Python goes, in a field that is not known here.
    found["deep"] = b"\x87" + found["bundle-0"][1:] + b"\xa1x" + b"\x91" * 5000 + b"\xc0"
    return found
