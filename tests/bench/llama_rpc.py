"""The demo model split over two hosts, against llama.cpp split over two of its RPC servers.

    python tests/bench/llama_rpc.py FOLDER GGUF [--tokens 64] [--prompt 512] [--rounds 5]

FOLDER holds `llama-bench` and `rpc-server` (or `ggml-rpc-server`), built from one source with
GGML_RPC=ON; GGUF is the demo model's file. All of it runs on this machine's cores, in turns.
llama.cpp runs in both of its sensible configurations, each server with all cores' threads and
unpinned, and each with its share of the cores and pinned to it; the better one of each kind of
work is what counts. Ours computes from the same 4-bit codes, with a client process beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from diffuse_core.adapters.models.demo import SMOLLM2
from diffuse_core.domain.selection import DEMO_MODEL_ID
from diffuse_core.domain.view import GenerateRequest
from diffuse_core.settings import NetworkOptions
from diffuse_core.wiring import observe
from tests.bench.split_decode import network

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from diffuse_core.services.client import ClientService

SERVERS = ("rpc-server", "ggml-rpc-server")
START_S = 20.0
Rates = tuple[float, float]
"""Tokens/s of decoding and of prefill."""


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class LlamaRpc:
    """Two RPC servers, and the benchmark of the same build that splits a model over them."""

    def __init__(self, folder: Path, gguf: Path, threads: int, cores: list[list[int]]) -> None:
        self._bench, self._gguf = folder / "llama-bench", gguf
        self._threads = threads
        self._cores = cores
        found = [folder / name for name in SERVERS if (folder / name).exists()]
        if not found or not self._bench.exists():
            raise SystemExit(f"{folder} lacks llama-bench or an RPC server; build them first")
        self._server = found[0]

    @contextlib.contextmanager
    def _servers(self) -> Iterator[str]:
        with contextlib.ExitStack() as stack:
            addresses = []
            for cores in self._cores:
                port = free_port()
                words = ["-H", "127.0.0.1", "-p", str(port), "-t", str(self._threads)]
                server = subprocess.Popen(
                    [self._server, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                stack.callback(server.wait)
                stack.callback(server.kill)
                # Its threads are made at its first work.
                os.sched_setaffinity(server.pid, cores)
                addresses.append(f"127.0.0.1:{port}")
                self._wait_for(port)
            yield ",".join(addresses)

    def _wait_for(self, port: int) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return
            time.sleep(0.05)
        raise SystemExit(f"{self._server} did not listen within {START_S:.0f} s")

    def rates(self, prompt: int, tokens: int) -> Rates:
        """One run of llama-bench: decoding, and a prompt."""
        with self._servers() as addresses:
            words = ["-m", self._gguf, "--rpc", addresses, "-ngl", "99", "-ts", "1/1"]
            words += ["-p", str(prompt), "-n", str(tokens), "-r", "1", "-o", "json"]
            words += ["-t", str(self._threads)]
            done = subprocess.run(
                [self._bench, *words], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise SystemExit(f"llama-bench failed: {done.stderr[-500:]}")
        tests: list[dict[str, Any]] = json.loads(done.stdout)
        decode = next(test["avg_ts"] for test in tests if test["n_gen"])
        prefill = next(test["avg_ts"] for test in tests if test["n_prompt"])
        return decode, prefill


async def our_rates(client: ClientService, prompt: int, tokens: int) -> Rates:
    """The same through a network: each from a generation of its own."""
    short = GenerateRequest(
        model=DEMO_MODEL_ID, raw="The river rises in", max_tokens=tokens, ignore_eos=True
    )
    long = GenerateRequest(
        model=DEMO_MODEL_ID, raw=" river" * prompt, max_tokens=1, ignore_eos=True
    )
    decode = (await client.whole(short))[2].timings.tokens_per_s
    finished = (await client.whole(long))[2]
    return decode, finished.usage.prompt_tokens / finished.timings.ttft_s


async def measure(given: argparse.Namespace) -> dict[str, list[Rates]]:
    """All ways, in turns."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    apart = [cores[:half], cores[half:] or cores]
    named = NetworkOptions("bench-rpc")
    ways: dict[str, Callable[[], Awaitable[Rates]]] = {}
    for text, threads, where in (
        (f"llama.cpp RPC, {len(cores)} threads each", len(cores), [cores, cores]),
        (f"llama.cpp RPC, {half} thread(s) each, pinned", half, apart),
    ):
        rpc = LlamaRpc(given.folder, given.gguf, threads, where)
        ways[text] = lambda r=rpc: asyncio.to_thread(r.rates, given.prompt, given.tokens)
    rates: dict[str, list[Rates]] = {}
    async with (
        network(2, named, "int4", given.threads or half) as demo,
        observe((demo.sentinel,), named) as (_, client),
    ):
        ours = f"diffuse int4, {given.threads or half} thread(s) each"
        ways[ours] = lambda: our_rates(client, given.prompt, given.tokens)
        for number in range(given.rounds + 1):
            for way, run in ways.items():
                found = await run()
                if number:  # The first round warms up.
                    rates.setdefault(way, []).append(found)
    return rates


def show(rates: dict[str, list[Rates]]) -> None:
    """One line for each way, and the ratios to the better of llama.cpp's."""
    ours = next(way for way in rates if way.startswith("diffuse"))
    for index, work in enumerate(("decode", "prefill")):
        medians = {}
        for way, found in rates.items():
            figures = [each[index] for each in found]
            medians[way] = statistics.median(figures)
            spread = f"{min(figures):.1f}-{max(figures):.1f}"
            print(f"{work:<8} {way:<42}{medians[way]:8.1f} tokens/s  ({spread})")
        best = max(value for way, value in medians.items() if way != ours)
        print(f"{work:<8} diffuse over the better of llama.cpp's: {medians[ours] / best:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of llama.cpp's binaries")
    parser.add_argument("gguf", type=Path, help="the demo model's file")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of each of our hosts; else half the cores")
    given = parser.parse_args()
    if hashlib.sha256(given.gguf.read_bytes()).hexdigest() != SMOLLM2.sha256:
        parser.error(f"{given.gguf} is not the demo model, {SMOLLM2.file_name}")
    before = os.getloadavg()[0]
    rates = asyncio.run(measure(given))
    print(
        f"{SMOLLM2.file_name}, batch 1, {given.tokens} tokens, prompt of {given.prompt}, "
        f"{given.rounds} rounds in turns, {len(os.sched_getaffinity(0))} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load {before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} at the end"
    )
    show(rates)


if __name__ == "__main__":
    main()
