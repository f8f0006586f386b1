"""The tokenizer bundle: all a Client needs to turn text into token ids and back.

It travels from any Host of the model to a Client, who checks its SHA-256 against the one in the
Host's signed record. The same model gives the same bytes on every Host.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from diffuse_core.domain.identity import SHORT_LENGTH
from diffuse_core.errors import ModelUnusable

MAX_BUNDLE_BYTES = 64 * 2**20
MAX_TEMPLATE_CHARS = 200_000

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**24)]


class Bundle(msgspec.Struct, frozen=True):
    """Tokenizer, template and the ids that matter.

    `tokenizer_json` is a file of the `tokenizers` library. `stop_ids` is the union of the end ids
    of config, generation config and tokenizer. `bos` and `eos` are the token *texts* a chat
    template may use. `context` is in positions.
    """

    tokenizer_json: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES)]
    chat_template: Annotated[str, msgspec.Meta(max_length=MAX_TEMPLATE_CHARS)] | None
    stop_ids: Annotated[tuple[_Id, ...], msgspec.Meta(max_length=64)]
    context: Annotated[int, msgspec.Meta(ge=1, le=2**30)]
    bos: Annotated[str, msgspec.Meta(max_length=256)] = ""
    eos: Annotated[str, msgspec.Meta(max_length=256)] = ""


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Bundle)


def encode_bundle(bundle: Bundle) -> bytes:
    """The bytes that travel; equal bundles give equal bytes."""
    return _encoder.encode(bundle)


def bundle_digest(data: bytes) -> str:
    """SHA-256 of a bundle's bytes, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def open_bundle(data: bytes, digest: str) -> Bundle:
    """Check and decode bytes from the network or the cache.

    Raises:
        ModelUnusable: the bytes are not those of `digest`, or are no bundle.
    """
    if len(data) > MAX_BUNDLE_BYTES or bundle_digest(data) != digest:
        raise ModelUnusable(
            f"the tokenizer bundle does not match {digest[:SHORT_LENGTH]}…; ask another host"
        )
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"the tokenizer bundle is malformed: {error}") from error
