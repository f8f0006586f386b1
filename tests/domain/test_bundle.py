from __future__ import annotations

import hashlib

import msgspec
import pytest

from diffuse_core.domain import bundle as bundles
from diffuse_core.domain.bundle import Bundle, bundle_digest, encode_bundle, open_bundle
from diffuse_core.errors import ModelUnusable

BUNDLE = Bundle(
    tokenizer_json=b"{}",
    chat_template="{{ messages }}",
    stop_ids=(0, 2),
    context=8192,
    bos="<s>",
    eos="</s>",
)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_bundle_comes_out_as_it_went_in() -> None:
    data = encode_bundle(BUNDLE)
    assert open_bundle(data, bundle_digest(data)) == BUNDLE


def test_equal_bundles_have_equal_bytes() -> None:
    again = Bundle(b"{}", "{{ messages }}", (0, 2), 8192, eos="</s>", bos="<s>")
    assert encode_bundle(again) == encode_bundle(BUNDLE)
    assert bundle_digest(encode_bundle(BUNDLE)) == digest_of(encode_bundle(BUNDLE))


@pytest.mark.parametrize("place", [0, 10, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    data = bytearray(encode_bundle(BUNDLE))
    digest = bundle_digest(bytes(data))
    data[place] ^= 1
    with pytest.raises(ModelUnusable, match=digest[:8]):
        open_bundle(bytes(data), digest)


@pytest.mark.parametrize(
    "change",
    [
        {"stop_ids": (-1,)},
        {"stop_ids": (2**24 + 1,)},
        {"stop_ids": tuple(range(65))},
        {"stop_ids": ("2",)},
        {"context": 0},
        {"context": 2**30 + 1},
        {"chat_template": "x" * (bundles.MAX_TEMPLATE_CHARS + 1)},
        {"bos": "x" * 257},
        {"tokenizer_json": 7},
    ],
)
def test_what_is_out_of_range_is_refused_though_the_digest_is_right(
    change: dict[str, object],
) -> None:
    data = msgspec.msgpack.encode({**msgspec.structs.asdict(BUNDLE), **change})
    with pytest.raises(ModelUnusable, match="malformed"):
        open_bundle(data, digest_of(data))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", encode_bundle(BUNDLE)[:-3]])
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(ModelUnusable, match="malformed"):
        open_bundle(data, digest_of(data))


def test_more_than_a_bundle_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 10)
    data = encode_bundle(BUNDLE)
    with pytest.raises(ModelUnusable, match="does not match"):
        open_bundle(data, bundle_digest(data))
