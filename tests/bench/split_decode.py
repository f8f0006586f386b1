"""Decode speed of the demo model, split over processes, against the unsplit and transformers.

    python tests/bench/split_decode.py [--tokens 64] [--rounds 5] [--dtype bf16]

Run by hand on a quiet machine; the ways take turns, so that a machine that drifts drifts for
all. Prints its conditions, the median tokens/s of each way and the ratios within this run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from diffuse_core.cli.demo import demo_network
from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.settings import NetworkOptions, cache_dir
from diffuse_core.wiring import model_store, observe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.services.client import ClientService

PROMPT = "The river rises in the mountains and"


def transformers_model(dtype: str) -> Any:
    """The unsplit model in this process, with the weights that the hosts read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    source = model_store().open("demo", lambda _fraction: None)
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    config = AutoConfig.for_model(**source.config())
    model = AutoModelForCausalLM.from_config(config, dtype=kind).eval()
    stored = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parts = [
                torch.frombuffer(bytearray(raw.data), dtype=stored[raw.dtype]).view(raw.shape)
                for raw in source.pieces(name)
            ]
            parameter.copy_(torch.cat(parts))
    return model


def generate_rate(model: Any, prompt: tuple[int, ...], tokens: int) -> float:
    """Tokens/s of `generate`, its prefill taken out."""
    import torch

    ids = torch.tensor([prompt])
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    spans = []
    for count in (1, tokens):
        start = time.perf_counter()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count,
            **options,
        )
        spans.append(time.perf_counter() - start)
    return (tokens - 1) / (spans[1] - spans[0])


async def network_rate(client: ClientService, tokens: int) -> float:
    """Tokens/s of one generation through a network."""
    request = GenerateRequest(model=DEMO_MODEL_ID, raw=PROMPT, max_tokens=tokens, ignore_eos=True)
    return (await client.whole(request))[2].timings.tokens_per_s


async def measure(tokens: int, rounds: int, dtype: str) -> dict[str, list[float]]:
    """All ways, in turns."""
    model = await asyncio.to_thread(transformers_model, dtype)
    rates: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], Awaitable[float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for hosts in (1, 2, 3):
            named = NetworkOptions(f"bench-{hosts}")
            network = await stack.enter_async_context(demo_network(hosts, named, dtype))
            _, client = await stack.enter_async_context(observe((network.sentinel,), named))
            ways[f"diffuse, {hosts} host(s)"] = lambda c=client: network_rate(c, tokens)
        prompt = tuple(range(1000, 1008))
        ways["transformers generate"] = lambda: asyncio.to_thread(
            generate_rate, model, prompt, tokens
        )
        for number in range(rounds + 1):
            for way, run in ways.items():
                rate = await run()
                if number:  # The first round warms up.
                    rates.setdefault(way, []).append(rate)
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    given = parser.parse_args()
    rates = asyncio.run(measure(given.tokens, given.rounds, given.dtype))
    threads = max(1, (os.cpu_count() or 1) // 2)
    print(
        f"demo model, {given.dtype}, batch 1, {given.tokens} tokens, {given.rounds} rounds in "
        f"turns, {threads} thread(s) a process, {os.cpu_count()} cores, {platform.processor()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, cache {cache_dir()}"
    )
    unsplit = statistics.median(rates["diffuse, 1 host(s)"])
    for way, found in rates.items():
        median = statistics.median(found)
        spread = f"{min(found):.1f}-{max(found):.1f}"
        print(f"{way:<24}{median:7.1f} tokens/s  ({spread})  {median / unsplit:.2f} of unsplit")


if __name__ == "__main__":
    main()
