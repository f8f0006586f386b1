"""The second lock: before a model is served in slices, a small one like it is cut and compared.

Tests prove each architecture on the configurations they know. Here the switches of the very
model that is being loaded are tried, with the version of the library that is installed.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.engine import Rows
from diffuse_core.adapters.executor.general import GeneralEngine
from diffuse_core.adapters.executor.miniature import miniature
from diffuse_core.adapters.executor.skeleton import CONTRADICTIONS, Plan
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from diffuse_core.adapters.executor.engine import Engine

    EngineMaker = Callable[[Plan, Mapping[str, torch.Tensor], Slice], Engine]

CHUNKS = (7, 4)
STEPS = 5
SEED = 20_250_101
TOLERANCE = 1e-3
"""Of the largest logit: between passes of different lengths, fp32 sums differ."""

_proven: set[str] = set()


def general_engine(plan: Plan, weights: Mapping[str, torch.Tensor], part: Slice) -> Engine:
    """The general engine over tensors in memory."""
    return GeneralEngine(plan, part, torch.float32, weights, plan.build(part, torch.float32))


def prove(config: Mapping[str, object], make: EngineMaker = general_engine) -> None:
    """Check that a small random model with these switches says the same whole and in slices.

    `make` makes the engine that is to be trusted.

    Takes some tenths of a second, once per process and configuration; leaves the global random
    state as it was.

    Raises:
        ModelUnusable: it does not, or the check cannot be made.
    """
    digest = make.__name__ + json.dumps(dict(config), sort_keys=True, default=str)
    if digest in _proven:
        return
    kind = str(config.get("model_type"))
    try:
        with torch.random.fork_rng(devices=[]):
            fault = _fault(kind, {k: v for k, v in config.items() if k != "model_type"}, make)
    except (*CONTRADICTIONS, AttributeError, IndexError) as error:
        raise ModelUnusable(
            f"the architecture {kind} with these settings could not be checked to give the same "
            f"text in slices: {error}"
        ) from error
    if fault:
        raise ModelUnusable(
            f"the architecture {kind} with these settings is not proven to give the same text in "
            f"slices: {fault}. Use another model, or the version of transformers that Diffuse "
            "asks for"
        )
    _proven.add(digest)


@torch.inference_mode()
def _fault(kind: str, config: Mapping[str, object], make: EngineMaker) -> str | None:
    """What differs, if anything."""
    settings = {**miniature(kind, config), "pad_token_id": None, "bos_token_id": None}
    reference = _random_model(kind, settings)
    plan = Plan({**settings, "model_type": kind})
    weights = dict(reference.state_dict())
    prompt = [(29 * i * i + 7) % plan.vocab for i in range(sum(CHUNKS))]
    whole, drawn = _play(plan, weights, (0, plan.layers), prompt, make)
    tokens = torch.tensor([prompt + drawn[:-1]])
    wanted = reference(input_ids=tokens, use_cache=False).logits[0].float()
    for position, logits in whole:
        bound = TOLERANCE * float(wanted[position].abs().max())
        if not float((logits - wanted[position]).abs().max()) <= bound:
            return f"position {position} differs from the library's own"
    middle = plan.layers // 2
    for borders in ((0, middle, plan.layers), (0, 1, plan.layers - 1, plan.layers)):
        cut, same = _play(plan, weights, borders, prompt, make)
        if drawn != same or not all(
            torch.equal(a, b) for (_, a), (_, b) in zip(whole, cut, strict=True)
        ):
            return f"cut into {len(borders) - 1}, it differs from the whole"
    return None


def _random_model(kind: str, settings: Mapping[str, object]) -> Any:
    """The library's own model, with numbers in all places, biases and norms too."""
    build: Any = AutoModelForCausalLM.from_config
    configuration: Any = CONFIG_MAPPING[kind]
    model = build(configuration(**settings), trust_remote_code=False, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(SEED)
    for name, tensor in sorted(model.state_dict().items()):
        spread = 0.2 if tensor.dim() > 1 else 0.1
        numbers = torch.randn(tensor.shape, generator=generator) * spread
        tensor.copy_(numbers + 1 if tensor.dim() == 1 and name.endswith("weight") else numbers)
    return model


def _play(
    plan: Plan,
    weights: Mapping[str, torch.Tensor],
    borders: Sequence[int],
    prompt: Sequence[int],
    make: EngineMaker,
) -> tuple[list[tuple[int, torch.Tensor]], list[int]]:
    """Chunks of the prompt, greedy steps, two taken back and run again in one pass.

    Gives (position, logits) of each pass and the tokens drawn.
    """
    parts = [Slice(a, b) for a, b in itertools.pairwise(borders)]
    engines = [make(plan, weights, part) for part in parts]
    caches = [engine.open(part, plan.context) for engine, part in zip(engines, parts, strict=True)]
    seen: list[tuple[int, torch.Tensor]] = []

    def step(tokens: Sequence[int]) -> int:
        rows: torch.Tensor | None = torch.tensor(tokens)
        for engine, cache in zip(engines, caches, strict=True):
            assert rows is not None  # noqa: S101 - only the last part gives None
            (rows,) = engine.together([Rows(cache, rows, want_logits=cache is caches[-1])])
        assert rows is not None  # noqa: S101 - logits were wanted
        seen.append((caches[-1].length - 1, rows))
        return int(rows.argmax())

    step(prompt[: CHUNKS[0]])
    drawn = [step(prompt[CHUNKS[0] :])]
    while len(drawn) < STEPS:
        drawn.append(step(drawn[-1:]))
    for cache in caches:
        cache.crop(cache.length - 2)
    step(drawn[-3:-1])
    return seen, drawn
