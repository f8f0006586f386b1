"""Decode speed of the demo model, split over processes, against the unsplit and transformers.

    python tests/bench/split_decode.py [--tokens 64] [--rounds 5] [--dtype int4] [--threads 1]

Run by hand on a quiet machine; the ways take turns, so that a machine that drifts drifts for
all. Every host computes with as many threads, so that one has no more cores to a pass than three.
Prints its conditions, the median tokens/s of each way and the ratios of neighbours in time: each
round's figure over that of the unsplit host in the same round.
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

from diffuse_core.cli.demo_network import DemoNetwork, demo_shape
from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.settings import NetworkOptions
from diffuse_core.wiring import model_store, observe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from diffuse_core.domain.shapes import Contract
    from diffuse_core.services.client import ClientService

PROMPT = "The river rises in the mountains and"
UNSPLIT = "diffuse, 1 host(s)"


def transformers_model(dtype: str, threads: int) -> Any:
    """The unsplit model in this process, with the weights that the hosts read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(threads)
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


@contextlib.asynccontextmanager
async def network(
    hosts: int, named: NetworkOptions, dtype: Contract, threads: int
) -> AsyncIterator[DemoNetwork]:
    """A demo network whose hosts have `threads` threads each."""
    shape = await asyncio.to_thread(demo_shape, lambda _fraction: None, dtype)
    running = DemoNetwork(hosts, named, lambda _text: None, None)
    try:
        await running.start(shape, dtype, threads * hosts)
        yield running
    finally:
        await running.stop()


async def network_rate(client: ClientService, tokens: int) -> float:
    """Tokens/s of one generation through a network."""
    request = GenerateRequest(model=DEMO_MODEL_ID, raw=PROMPT, max_tokens=tokens, ignore_eos=True)
    return (await client.whole(request))[2].timings.tokens_per_s


async def measure(given: argparse.Namespace) -> dict[str, list[float]]:
    """All ways, in turns."""
    rates: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], Awaitable[float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for hosts in given.hosts:
            named = NetworkOptions(f"bench-{hosts}")
            demo = await stack.enter_async_context(
                network(hosts, named, given.dtype, given.threads)
            )
            _, client = await stack.enter_async_context(observe((demo.sentinel,), named))
            ways[f"diffuse, {hosts} host(s)"] = lambda c=client: network_rate(c, given.tokens)
        if given.transformers:
            model = await asyncio.to_thread(transformers_model, given.dtype, given.threads)
            prompt = tuple(range(1000, 1008))
            ways["transformers generate"] = lambda: asyncio.to_thread(
                generate_rate, model, prompt, given.tokens
            )
        for number in range(given.rounds + 1):
            for way, run in ways.items():
                rate = await run()
                if number:  # The first round warms up.
                    rates.setdefault(way, []).append(rate)
    return rates


def main() -> None:
    """Measure and print."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=["bf16", "fp32", "int4"], default="bf16")
    parser.add_argument("--threads", type=int, default=max(1, cores // 2), help="of each host")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--pin", type=int, nargs="+", help="cores for all processes; else any")
    parser.add_argument("--transformers", action="store_true", help="measure its generate, too")
    given = parser.parse_args()
    if given.transformers and given.dtype == "int4":
        parser.error("transformers computes no int4; leave out --transformers, or choose bf16")
    if given.pin:
        os.sched_setaffinity(0, given.pin)
    before = os.getloadavg()[0]
    rates = asyncio.run(measure(given))
    print(
        f"demo model, {given.dtype}, batch 1, {given.tokens} tokens, {given.rounds} rounds in "
        f"turns, {given.threads} thread(s) a host, {len(os.sched_getaffinity(0))} of {cores} "
        f"cores, {platform.machine()}, Python {platform.python_version()}, load {before:.1f} "
        f"before and {os.getloadavg()[0]:.1f} at the end"
    )
    for way, found in rates.items():
        spread = f"{min(found):.1f}-{max(found):.1f}"
        line = f"{way:<24}{statistics.median(found):7.1f} tokens/s  ({spread})"
        if UNSPLIT in rates:
            ratios = [rate / whole for rate, whole in zip(found, rates[UNSPLIT], strict=True)]
            line += f"  {statistics.median(ratios):.2f} of unsplit"
        print(line)


if __name__ == "__main__":
    main()
