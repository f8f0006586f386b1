"""How far a contract's next-token distributions are from fp32's, on a fixed text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.model_ports import WeightSource

TEXTS = (
    "The capital of France is a city on the river Seine, and people have lived there for more "
    "than two thousand years. In the morning the bakers open their shops; in the evening the "
    "lights of the bridges shine on the water. A long time ago, a young painter came to the city "
    "with nothing but a box of colours and a letter for an uncle whom he had never met. He knocked"
    " at every door of the street, until an old woman told him that the house had been sold.",
    "Water boils at 100 degrees Celsius at sea level, but on a high mountain it boils earlier, "
    "because the pressure of the air is lower there. This is why cooking rice or eggs takes more "
    "time in the mountains. A pressure cooker does the opposite: it keeps the steam inside.",
    "def fibonacci(n: int) -> list[int]:\n"
    '    """Return the first n numbers of the sequence."""\n'
    "    numbers = [0, 1]\n"
    "    while len(numbers) < n:\n"
    "        numbers.append(numbers[-1] + numbers[-2])\n"
    "    return numbers[:n]\n\n\n"
    "def is_prime(n: int) -> bool:\n"
    "    if n < 2:\n"
    "        return False\n"
    "    for divisor in range(2, int(n ** 0.5) + 1):\n"
    "        if n % divisor == 0:\n"
    "            return False\n"
    "    return True\n",
    "<|im_start|>user\nWhat are three good reasons to learn a second language?<|im_end|>\n"
    "<|im_start|>assistant\nHere are three reasons. First, you can talk with more people, at home "
    "and when you travel. Second, it trains your memory. Third, it helps you to understand how "
    "your own language works.<|im_end|>\n",
)
"""Prose, facts, code and a chat."""


class Quality(NamedTuple):
    """What a contract is worth beside fp32."""

    positions: int
    agreement: float
    """The share of positions whose most likely token is the same."""
    divergence: float
    """Mean over positions of KL(fp32 || contract), in nats."""
    worst: float
    """The largest of them."""

    def __str__(self) -> str:
        return (
            f"{self.positions} positions, top-1 {self.agreement:.3f}, "
            f"mean KL {self.divergence:.5f}, largest {self.worst:.4f}"
        )


def texts_as_ids(source: WeightSource) -> list[tuple[int, ...]]:
    """The texts, by the model's own tokenizer."""
    data = source.bundle()
    tokenizer = load_tokenizer(open_bundle(data, bundle_digest(data)))
    return [tokenizer.encode(text) for text in TEXTS]


def whole_engine(source: WeightSource, contract: Contract) -> Engine:
    """The engine that a host of the whole model would use."""
    layers = source.config()["num_hidden_layers"]
    assert isinstance(layers, int)
    return load_slice(source, Slice(0, layers), contract, lambda _: None)._engine


@torch.inference_mode()
def decoded(engine: Engine, texts: Sequence[Sequence[int]], part: Slice) -> torch.Tensor:
    """Logits (positions, vocab) after each token of each text, one row a pass as when decoding."""
    rows = []
    for ids in texts:
        cache = engine.open(part, len(ids))
        for token in ids:
            (logits,) = engine.together([Rows(cache, torch.tensor([token]), want_logits=True)])
            assert logits is not None
            rows.append(logits)
    return torch.stack(rows)


def quality(reference: torch.Tensor, other: torch.Tensor) -> Quality:
    """Compare logits (positions, vocab)."""
    wanted, found = reference.log_softmax(1), other.log_softmax(1)
    divergences = (wanted.exp() * (wanted - found)).sum(1)
    agreed = (reference.argmax(1) == other.argmax(1)).float().mean()
    return Quality(
        len(reference), float(agreed), float(divergences.mean()), float(divergences.max())
    )


class Uncoded:
    """A source as if its numbers were stored in full: codes are then made here."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def bits_of(self, _name: str) -> int:
        return 32

    def codes(self, _name: str) -> None:
        return None


def measured(
    source: WeightSource, contracts: Sequence[Contract], *, from_numbers: Sequence[Contract] = ()
) -> dict[str, Quality]:
    """Each contract against fp32, over the texts; some also with codes made from numbers."""
    texts = texts_as_ids(source)
    layers = source.config()["num_hidden_layers"]
    assert isinstance(layers, int)
    whole = Slice(0, layers)
    reference = decoded(whole_engine(source, "fp32"), texts, whole)

    def one(weights: WeightSource, contract: Contract) -> Quality:
        return quality(reference, decoded(whole_engine(weights, contract), texts, whole))

    found = {str(contract): one(source, contract) for contract in contracts}
    uncoded = cast("WeightSource", Uncoded(source))
    for contract in from_numbers:
        found[f"{contract} from numbers"] = one(uncoded, contract)
    return found
