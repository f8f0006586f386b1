"""SmolLM2 over real processes says what one process says that holds all of it, id for id.

In fp32 that process is `transformers`, on weights read by other code. Other contracts round, each
library where it likes, and words that are nearly tied fall either way: there one executor that
holds the whole model under the same contract is the measure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import gguf
import pytest
import torch

from diffuse_core import wiring
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.session import PREFILL_ROWS
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.view import ChatMessage, GenerateRequest
from tests.adapters.executor.stages import Chain
from tests.adapters.executor.test_real_model import reference_model
from tests.e2e.own_cache import own_cache
from tests.e2e.processes import Processes
from tests.greedy import last_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from diffuse_core.ports import Tokenizer
    from diffuse_core.services.client import ClientService

    Unsplit = Callable[[tuple[int, ...]], list[int]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 10
SHORT = (
    "Hello",
    "The sky",
    "1 2 3",
    "def main():",
    "Once upon a time",
    "Was ist das?",
    "Il était une fois",
    "你好世界",
    "🙂 means",
    "The capital of France is",
    "import numpy as np\n\ndef mean(",
    "Q: What is 7 times 8?\nA:",
)
STORY = (
    "The ferry left the island at dawn, and the baker's daughter watched it from the wall with a "
    "loaf under each arm. Nobody had told her why the lighthouse had been dark for three nights, "
    "but she had counted the boats that did not come home. "
)
LONG = tuple((STORY * 12)[:length] for length in (60, 120, 180, 240, 330, 420, 700, 2700))
PROMPTS = SHORT + LONG
CAPS = {"fp32": "340MiB", "bf16": "170MiB", "int4": "95MiB"}
"""int8 would compute the very same: it takes over the 4-bit codes of this file."""
LAYERS = 30
THREADS = 1


@pytest.fixture(scope="module", params=CAPS)
def contract(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def network(
    contract: str, tmp_path_factory: pytest.TempPathFactory, demo_gguf: Path
) -> Iterator[Processes]:
    """Three hosts whose memory is too small for the model, computing in `contract`."""
    with Processes(tmp_path_factory.mktemp("exact")) as processes:
        processes.start_sentinel()
        for number in range(3):
            processes.start_host(
                f"host-{number}", str(demo_gguf), "--memory", CAPS[contract], "--dtype", contract
            )
        processes.until_servable(hosts=3)
        yield processes


@pytest.fixture(scope="module")
def tokenizer(demo_gguf: Path) -> Tokenizer:
    data = GgufSource(demo_gguf).bundle()
    return load_tokenizer(open_bundle(data, bundle_digest(data)))


@pytest.fixture(scope="module")
def unsplit(contract: str, demo_gguf: Path, tokenizer: Tokenizer) -> Iterator[Unsplit]:
    """What the whole model says to a prompt, on as many threads as the hosts use."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    make = of_transformers if contract == "fp32" else of_one_executor
    yield make(demo_gguf, contract, tokenizer.stop_ids)
    torch.set_num_threads(before)


def of_transformers(path: Path, _contract: str, stop: tuple[int, ...]) -> Unsplit:
    model = reference_model(gguf.GGUFReader(path))

    def says(prompt: tuple[int, ...]) -> list[int]:
        given = torch.tensor([prompt])
        with torch.inference_mode():
            out = model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=COUNT,
                do_sample=False,
                pad_token_id=2,
                eos_token_id=list(stop),
            )
        return out[0, len(prompt) :].tolist()

    return says


def of_one_executor(path: Path, contract: str, stop: tuple[int, ...]) -> Unsplit:
    executor = load_slice(GgufSource(path), Slice(0, LAYERS), contract, lambda _: None)

    def says(prompt: tuple[int, ...]) -> list[int]:
        chain = Chain([executor], budget=len(prompt) + COUNT)
        rest = len(prompt) % PREFILL_ROWS or PREFILL_ROWS
        for at in range(0, len(prompt) - rest, PREFILL_ROWS):
            chain.step(prompt[at : at + PREFILL_ROWS], want_token=False)
        drawn = [last_token(chain.step(prompt[-rest:]))]
        while len(drawn) < COUNT and drawn[-1] not in stop:
            drawn.append(last_token(chain.step(drawn[-1:])))
        chain.close()
        return drawn

    return says


def asked(model: str, prompt: str) -> GenerateRequest:
    return GenerateRequest(model=model, raw=prompt, max_tokens=COUNT)


async def test_split_over_processes_it_says_what_the_whole_says(
    network: Processes,
    unsplit: Unsplit,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", own_cache(tmp_path))
    model = network.models()[0]["id"]
    async with wiring.observe((network.sentinel,)) as (_, client):
        # One at a time, and then all at once: neither may change an answer.
        answers = [await client.whole(asked(model, prompt)) for prompt in PROMPTS]
        together = await at_once(client, model)
    lengths = set()
    for prompt, (text, tokens, finished) in zip(PROMPTS, answers, strict=True):
        given = tokenizer.encode(prompt)
        lengths.add(len(given))
        assert finished.usage.prompt_tokens == len(given)
        assert list(tokens) == unsplit(given), prompt[:40]
        assert "<|" not in text
        parts = [step.slice for step in finished.route]
        assert len(parts) == 3
        assert (parts[0].start, parts[-1].end) == (0, LAYERS)
    assert len(PROMPTS) >= 20
    assert len(lengths) >= 15
    assert max(lengths) > 2 * PREFILL_ROWS
    assert together == [tokens for _, tokens, _ in answers]


async def at_once(client: ClientService, model: str) -> list[tuple[int, ...]]:
    limit = asyncio.Semaphore(4)

    async def one(prompt: str) -> tuple[int, ...]:
        async with limit:
            return (await client.whole(asked(model, prompt)))[1]

    return list(await asyncio.gather(*map(one, PROMPTS)))


async def test_a_chat_says_what_the_whole_says(
    network: Processes, unsplit: Unsplit, tokenizer: Tokenizer
) -> None:
    question = "What is the capital of France?"
    answer = network.query(network.models()[0]["id"], question, "--max-tokens", str(COUNT))
    prompt = tokenizer.encode_chat([ChatMessage("user", question)])
    assert answer["token_ids"] == unsplit(prompt)
    assert "Paris" in answer["text"]
