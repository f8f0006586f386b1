"""SmolLM2 over real processes says what `transformers` says on the same weights, id for id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import gguf
import pytest
import torch

from diffuse_core import wiring
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.view import ChatMessage, GenerateRequest
from tests.adapters.executor.test_real_model import reference_model
from tests.e2e.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from transformers import LlamaForCausalLM

    from diffuse_core.ports import Tokenizer
    from diffuse_core.services.client import ClientService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 16
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
LONG = tuple((STORY * 12)[:length] for length in (60, 120, 240, 420, 700, 1100, 1800, 2700))
PROMPTS = SHORT + LONG
CAPS = {"fp32": "340MiB", "bf16": "170MiB"}
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
def reference(contract: str, demo_gguf: Path) -> Iterator[LlamaForCausalLM]:
    """The weights as other code reads them, on as many threads as the hosts use."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    model = reference_model(gguf.GGUFReader(demo_gguf))
    if contract == "bf16":
        # Not `model.to`, which would round the rotary frequencies too.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
    yield model
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer(demo_gguf: Path) -> Tokenizer:
    data = GgufSource(demo_gguf).bundle()
    return load_tokenizer(open_bundle(data, bundle_digest(data)))


def says(model: LlamaForCausalLM, prompt: tuple[int, ...], stop: tuple[int, ...]) -> list[int]:
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


def asked(model: str, prompt: str) -> GenerateRequest:
    return GenerateRequest(model=model, raw=prompt, max_tokens=COUNT)


async def test_split_over_processes_it_says_what_transformers_says(
    network: Processes,
    reference: LlamaForCausalLM,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DIFFUSE_CACHE_DIR", str(tmp_path))
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
        assert list(tokens) == says(reference, given, tokenizer.stop_ids), prompt[:40]
        assert "<|" not in text
        parts = [step.slice for step in finished.route]
        assert len(parts) == 3
        assert (parts[0].start, parts[-1].end) == (0, 30)
    assert len(PROMPTS) >= 20
    assert len(lengths) >= 15
    assert max(lengths) > 512  # More than one pass of prefill takes.
    assert together == [tokens for _, tokens, _ in answers]


async def at_once(client: ClientService, model: str) -> list[tuple[int, ...]]:
    limit = asyncio.Semaphore(4)

    async def one(prompt: str) -> tuple[int, ...]:
        async with limit:
            return (await client.whole(asked(model, prompt)))[1]

    return list(await asyncio.gather(*map(one, PROMPTS)))


async def test_a_chat_says_what_transformers_says(
    network: Processes, reference: LlamaForCausalLM, tokenizer: Tokenizer
) -> None:
    question = "What is the capital of France?"
    answer = network.query(network.models()[0]["id"], question, "--max-tokens", str(COUNT))
    prompt = tokenizer.encode_chat([ChatMessage("user", question)])
    assert answer["token_ids"] == says(reference, prompt, tokenizer.stop_ids)
    assert "Paris" in answer["text"]
