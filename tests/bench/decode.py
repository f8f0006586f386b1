"""Decoding and prefill of one process: Diffuse in each contract, transformers, llama.cpp.

    python tests/bench/decode.py [--model demo] [--threads 1] [--rounds 5] [--tokens 64]
        [--prefill 512] [--contracts bf16,int8,int4] [--llama-bench PATH] [--profile]

Run by hand on a quiet machine. The ways take turns within every round, so that a machine that
drifts drifts for all; medians and the ratios within this run are printed with the conditions.
`--llama-bench` is llama.cpp's own benchmark, run on the same GGUF with the same counts.
`--profile` prints where the time of one-row passes goes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from diffuse_core.adapters.executor.loader import load_slice, set_threads
from diffuse_core.adapters.executor.tensors import view_stored
from diffuse_core.domain.session import PREFILL_ROWS
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import DiffuseError
from diffuse_core.model_ports import StageStep
from diffuse_core.wiring import model_store
from tests.greedy import GREEDY, last_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.adapters.executor.stage_executor import StageExecutor
    from diffuse_core.model_ports import WeightSource

SESSION = b"b" * 16
MATRIX = ("linear", "pack_mm", "addmm", "matmul", "::mm", "bmm")
ATTENTION = ("attention",)


def prompt_of(length: int, vocab: int) -> tuple[int, ...]:
    """Token ids that no cache of earlier runs knows: scattered, always the same."""
    return tuple((7919 * i * i + 104729 * i + 11) % vocab for i in range(length))


class Ours:
    """The executor with the whole model, driven as a Stage drives it."""

    def __init__(self, source: WeightSource, contract: Any) -> None:
        layers = source.shape(contract).layers
        self.part = Slice(0, layers)
        self.vocab = source.shape(contract).vocab
        self.executor: StageExecutor = load_slice(source, self.part, contract, lambda _: None)

    def step(self, tokens: tuple[int, ...], position: int, *, want: bool) -> int | None:
        """One pass."""
        step = StageStep(
            session=SESSION,
            part=self.part,
            position=position,
            tokens=tokens,
            chooser=GREEDY if want else None,
        )
        (result,) = self.executor.run([step])
        if isinstance(result, DiffuseError):
            raise result
        return last_token(result)

    def prefill(self, length: int) -> float:
        """Tokens/s of a prompt, its first token drawn."""
        prompt = prompt_of(length, self.vocab)
        self.executor.open(SESSION, self.part, length + 8)
        started = time.perf_counter()
        for at in range(0, length, PREFILL_ROWS):
            chunk = prompt[at : at + PREFILL_ROWS]
            self.step(chunk, at, want=at + len(chunk) == length)
        seconds = time.perf_counter() - started
        self.executor.close(SESSION)
        return length / seconds

    def decode(self, tokens: int) -> float:
        """Tokens/s after a short prompt."""
        prompt = prompt_of(16, self.vocab)
        self.executor.open(SESSION, self.part, 16 + tokens + 8)
        drawn = self.step(prompt, 0, want=True)
        started = time.perf_counter()
        for at in range(tokens):
            drawn = self.step((int(drawn or 0),), 16 + at, want=True)
        seconds = time.perf_counter() - started
        self.executor.close(SESSION)
        return tokens / seconds


class Library:
    """`generate` of transformers with the same weights."""

    def __init__(self, source: WeightSource, dtype: torch.dtype) -> None:
        config = AutoConfig.for_model(**source.config())
        build: Any = AutoModelForCausalLM.from_config
        self.model = build(config, dtype=dtype).eval()
        for name, parameter in self.model.named_parameters():
            at = 0
            for piece in source.pieces(name):
                rows = view_stored(piece)
                parameter.data[at : at + rows.shape[0]] = rows
                at += rows.shape[0]
        self.vocab = int(config.vocab_size)

    def _generate(self, prompt: tuple[int, ...], tokens: int) -> float:
        ids = torch.tensor([prompt])
        settings = transformers.GenerationConfig(
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        started = time.perf_counter()
        with torch.inference_mode():
            self.model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=settings
            )
        return time.perf_counter() - started

    def prefill(self, length: int) -> float:
        """Tokens/s of a prompt, its first token drawn."""
        return length / self._generate(prompt_of(length, self.vocab), 1)

    def decode(self, tokens: int) -> float:
        """Tokens/s after a short prompt, the prompt's own time taken out."""
        prompt = prompt_of(16, self.vocab)
        whole = self._generate(prompt, tokens + 1)
        return tokens / (whole - self._generate(prompt, 1))


class Llama:
    """llama-bench on the same file."""

    def __init__(self, program: Path, gguf: Path, threads: int) -> None:
        self.command = [str(program), "-m", str(gguf), "-t", str(threads), "-r", "1", "-o", "json"]

    def _run(self, prompt: int, tokens: int) -> float:
        arguments = [*self.command, "-p", str(prompt), "-n", str(tokens)]
        done = subprocess.run(arguments, capture_output=True, check=True)
        return float(json.loads(done.stdout)[0]["avg_ts"])

    def prefill(self, length: int) -> float:
        """Tokens/s of a prompt."""
        return self._run(length, 0)

    def decode(self, tokens: int) -> float:
        """Tokens/s of generation."""
        return self._run(0, tokens)


def profile(ours: Ours, tokens: int) -> str:
    """The share of matrix kernels and of attention in the time of one-row passes."""
    from torch.profiler import ProfilerActivity, profile

    ours.decode(8)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        ours.decode(tokens)
    events = found.key_averages()
    total = sum(event.self_cpu_time_total for event in events)

    def share(words: tuple[str, ...]) -> float:
        mine = [e for e in events if any(word in e.key for word in words)]
        return 100 * sum(event.self_cpu_time_total for event in mine) / total

    matrices, attention = share(MATRIX), share(ATTENTION)
    rest = sorted(events, key=lambda e: -e.self_cpu_time_total)[:8]
    top = ", ".join(f"{e.key} {100 * e.self_cpu_time_total / total:.1f}" for e in rest)
    return (
        f"matrices {matrices:.1f} %, attention {attention:.1f} %, "
        f"together {matrices + attention:.1f} % (most: {top})"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--contracts", default="bf16,int8,int4")
    parser.add_argument("--library", default="bf16", help="fp32, bf16 or none, for transformers")
    parser.add_argument("--llama-bench", type=Path)
    parser.add_argument("--gguf", type=Path, help="the file for llama-bench")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    set_threads(given.threads)
    source = model_store().open(given.model, lambda _: None)
    ours = {name: Ours(source, name) for name in given.contracts.split(",")}
    ways: dict[str, Any] = {f"diffuse {name}": way for name, way in ours.items()}
    if given.library != "none":
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[given.library]
        ways[f"transformers {given.library}"] = Library(source, kind)
    if given.llama_bench and given.gguf:
        ways["llama.cpp"] = Llama(given.llama_bench, given.gguf, given.threads)
    print(
        f"{source.id}, {given.threads} thread(s), {platform.processor() or platform.machine()}, "
        f"python {platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, {given.rounds} rounds in turns, medians"
    )
    print_table("decode, tokens/s", ways, given.rounds, lambda way: way.decode(given.tokens))
    print_table(
        f"prefill {given.prefill}, tokens/s",
        ways,
        given.rounds,
        lambda way: way.prefill(given.prefill),
    )
    if given.profile:
        for name, way in ours.items():
            print(f"profile of {name} decode: {profile(way, 32)}")


def print_table(
    title: str, ways: dict[str, Any], rounds: int, measure: Callable[[Any], float]
) -> None:
    """Run all ways in turns; one line each, with ratios to the others'."""
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        measure(way)
    for _ in range(rounds):
        for name, way in ways.items():
            figures[name].append(measure(way))
    medians = {name: statistics.median(found) for name, found in figures.items()}
    peers = [name for name in ways if not name.startswith("diffuse")]
    print(title)
    for name, median in medians.items():
        low, high = min(figures[name]), max(figures[name])
        ratios = ", ".join(
            f"{median / medians[peer]:.2f}x {peer}" for peer in peers if peer != name
        )
        print(f"  {name:20} {median:8.1f}  ({low:.1f} to {high:.1f})  {ratios}")


if __name__ == "__main__":
    main()
