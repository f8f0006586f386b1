"""The `tokenizers` library, kept from what a hostile tokenizer.json makes of it.

The file names steps that text goes through, and some can make much of little: a text of a
megabyte with each letter replaced by another megabyte ends the process. So its steps are looked
at before the library reads them, and whatever the library raises becomes a ModelUnusable.
A pattern that takes long for a text is not known beforehand; the library gives up on each match
after some tenths of a second.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from tokenizers import Tokenizer

from diffuse_core.adapters.tokenizer.chat_template import printable
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_STEPS = 64
MAX_GROWTH = 64
"""How much longer all replacements of a step list together may make a text."""
MAX_TOKEN_CHARS = 8192
MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
# Of the known normalizers only Precompiled is left out: its table may hold texts of any length.
NORMALIZERS = (
    "BertNormalizer",
    "ByteLevel",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Prepend",
    "Replace",
    "Sequence",
    "Strip",
    "StripAccents",
)


class _Model(msgspec.Struct):
    type: str = "BPE"


class _Outline(msgspec.Struct):
    """The parts of a tokenizer.json that are looked at; the vocabulary is passed over."""

    model: _Model
    normalizer: dict[str, object] | None = None
    decoder: dict[str, object] | None = None


_decoder = msgspec.json.Decoder(_Outline)


def read_tokenizer(data: bytes) -> Tokenizer:
    """Read a tokenizer.json from the network.

    Raises:
        ModelUnusable: it is damaged, hostile, or has a step that cannot be bounded.
    """
    with library_errors("the model's tokenizer cannot be read"):
        _check_outline(_decoder.decode(data))
        tokenizer = Tokenizer.from_buffer(data)
        # Both are for batches of training, and may ask for a padding of any length.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        longest = max(map(len, tokenizer.get_vocab()), default=0)
    if not 0 < longest <= MAX_TOKEN_CHARS:
        raise ModelUnusable(
            f"the model's tokenizer has {longest} characters in its longest token (1 to "
            f"{MAX_TOKEN_CHARS} are accepted); use another model"
        )
    return tokenizer


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn what the library raises into ModelUnusable; `what` begins the message."""
    try:
        yield
    except ModelUnusable:
        raise
    except BaseException as error:
        # A panic of the library's Rust code is no Exception, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelUnusable(f"{what}: {printable(str(error))}; use another model") from error


def _check_outline(outline: _Outline) -> None:
    if outline.model.type not in MODELS:
        raise ModelUnusable(f"a tokenizer of the kind {printable(outline.model.type)} is unknown")
    for kind in _check_steps(outline.normalizer):
        if kind not in NORMALIZERS:
            raise ModelUnusable(
                f"the model's tokenizer has the normalizer {printable(str(kind))}, which is not "
                "supported; use another model"
            )
    _check_steps(outline.decoder)


def _check_steps(root: dict[str, object] | None) -> list[object]:
    """The kinds of a list of steps, after bounding their number and their replacements."""
    steps = [] if root is None else [root]
    kinds: list[object] = []
    growth = 1
    while steps:
        step = steps.pop()
        kinds.append(step.get("type"))
        for value in step.values():
            if isinstance(value, list):
                steps += [inner for inner in value if isinstance(inner, dict)]
        content = step.get("content", step.get("prepend"))
        growth *= max(1, len(content)) if isinstance(content, str) else 1
        if len(kinds) > MAX_STEPS or growth > MAX_GROWTH:
            raise ModelUnusable(
                "the model's tokenizer makes texts longer without measure; use another model"
            )
    return kinds
