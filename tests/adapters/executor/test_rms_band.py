"""The band for hidden states never refuses what the demo model gives, whatever the prompt."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.domain import rms_band as code
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.rms_band import Learned, RmsBand
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ChatMessage
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageStep
from diffuse_core.wiring import open_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.model_ports import RowsCheck
    from diffuse_core.ports import Tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CUTS = (0, 1, 3, 8, 12, 24, 29)
SENDERS = (b"a" * 32, b"b" * 32, b"c" * 32)
DRAWN = 5
"""Rows after the prompt, as of an answer."""


def prompts(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Long ones and odd ones."""
    text = Path(code.__file__).read_text("utf-8")
    chance = random.Random(1)
    chat = tokenizer.encode_chat((ChatMessage("user", "What is the capital of France?"),))
    said = tokenizer.encode("The capital of France is Paris. It lies on the Seine.\n")
    return [
        chat,
        tuple(tokenizer.encode("hello") * 280),
        (tokenizer.encode(text) * 3)[:1000],
        tuple(tokenizer.encode("\n") * 100) + said,
        tuple(tokenizer.encode('. , ; : . . \n\n . , "') * 20),
        tuple(tokenizer.encode("今天天气很好。 Сегодня хорошая погода. Il fait beau. 🙂") * 4),
        tuple(chance.randrange(49_152) for _ in range(300)),
        tuple(chance.randrange(17) for _ in range(100)) + said,
        tuple(chat[:1]),
        said,
        tokenizer.encode("stone door way town day night family road bread"),
    ]


def scaled(band: RmsBand, sender: bytes, factor: float) -> RowsCheck:
    """The band's check, of rows so many times as large."""
    return lambda position, rms: band.check(sender, position, [factor * one for one in rms])


class Chain:
    """Slices one behind the other, and what came over each border in all sessions."""

    def __init__(self, source: GgufSource, contract: str) -> None:
        ends = itertools.pairwise(CUTS)
        self.slices: list[StageExecutor] = [
            load_slice(source, Slice(*edges), contract, lambda _: None) for edges in ends
        ]
        self.learned = [Learned() for _ in self.slices[1:]]

    def session(self, at: int, tokens: Sequence[int], *, factor: float = 1.0) -> None:
        """Let a prompt pass, in pieces, and some rows one by one; check each border."""
        name, sender = at.to_bytes(16, "big"), SENDERS[at % len(SENDERS)]
        bands = [RmsBand(learned) for learned in self.learned]
        said = (*tokens, *(tokens[-1],) * DRAWN)
        starts = [*range(0, len(tokens), 256), *range(len(tokens), len(said))]
        for one in self.slices:
            one.open(name, one.slice, len(said))
        for start, end in zip(starts, [*starts[1:], len(said)], strict=True):
            ids, hidden = tuple(said[start:end]), None
            wrong = factor if start >= len(tokens) else 1.0
            for one, band in zip(self.slices, (None, *bands), strict=True):
                (found,) = one.run(
                    [
                        StageStep(
                            session=name,
                            part=one.slice,
                            position=start,
                            tokens=ids if hidden is None else None,
                            hidden=hidden,
                            alone=start >= len(tokens),
                            check=band and scaled(band, sender, wrong),
                        )
                    ]
                )
                if isinstance(found, Refused):
                    raise found
                hidden = found.hidden
        for one in self.slices:
            one.close(name)


@pytest.mark.parametrize("contract", ["int4", "int8", "bf16", "fp32"])
def test_rows_of_the_demo_model_pass(demo_gguf: Path, contract: str) -> None:
    source = GgufSource(demo_gguf)
    bundle = source.bundle()
    tokenizer = open_tokenizer(open_bundle(bundle, bundle_digest(bundle)))
    chain = Chain(source, contract)
    for at, tokens in enumerate(prompts(tokenizer)):
        chain.session(at, tokens)
    # The very same nodes in other sessions: what one knows is known of all.
    for at, tokens in enumerate(prompts(tokenizer)[3:], 11):
        chain.session(at, tokens)
    with pytest.raises(Refused):
        chain.session(99, prompts(tokenizer)[2][:300], factor=1 / 64)
    with pytest.raises(Refused):
        chain.session(98, prompts(tokenizer)[2][:300], factor=1e6)
