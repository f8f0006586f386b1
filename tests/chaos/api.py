"""Programs that ask over HTTP with OpenAI's own client, and the server that they ask."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

import openai
import psutil

from diffuse_core.adapters.file_storage.api_key import API_KEY
from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.view import Telemetry
from diffuse_core.errors import ChannelClosed
from diffuse_core.wiring import model_store
from tests.chaos.ledger import Answered
from tests.e2e.lives import Life, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.load_plan import Ask
    from tests.chaos.questions import Question, RightAnswers
    from tests.chaos.scene import Scene

LISTEN_S = 90.0
CALL_S = 120.0
TICK_S = 1.0
CODES = {404: 3, 429: 6, 503: 4}
"""What a status means, as an exit code; others are undocumented, or their clients' fault."""
GONE = 5
"""No server is there, or it went away."""


async def start_server(scene: Scene, name: str, *options: str) -> Life:
    """Start a server for programs, and wait until it serves.

    Raises:
        AssertionError: it does not.
    """
    processes = scene.processes
    before = len(processes.log(name)) if (scene.directory / name / "log").exists() else 0
    process = processes.start(
        name, "serve", "--json", "--log-level", "info", *scene.network.arguments(), *options
    )
    began = time.time()

    def url() -> str:
        lines = [line for line in processes.log(name)[before:].splitlines() if line[:1] == "{"]
        return next((told["url"] for line in lines if "url" in (told := json.loads(line))), "")

    try:
        await until(lambda: url() or process.poll() is not None, LISTEN_S)
    except TimeoutError:
        raise AssertionError(f"{name} does not serve: {processes.log(name)[-2000:]}") from None
    assert process.poll() is None, processes.log(name)[before:][-2000:]
    return Life(name, name, url().removeprefix("http://").removesuffix("/v1"), process.pid, began)


async def follow_server(life: Life) -> None:
    """Note once a second what the machine tells of its process, as a node tells of itself."""
    process = psutil.Process(life.pid)
    while life.ended is None:
        try:
            size, files = process.memory_info().rss, process.num_fds()
        except psutil.Error:
            return
        now = time.time()
        told = Telemetry(
            cpu_percent=0.0,
            cpu_count=os.cpu_count() or 1,
            memory_total=0,
            memory_available=0,
            process_rss=size,
            uptime_s=now - life.began,
            open_files=files,
        )
        life.samples.append((now, told))
        await asyncio.sleep(TICK_S)


class Words:
    """What tokens say: as whoever is given only text sees it."""

    def __init__(self, path: Path) -> None:
        data = model_store().open(str(path), lambda _: None).bundle()
        self._tokenizer = load_tokenizer(open_bundle(data, bundle_digest(data)))

    def text(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The characters of an answer."""
        stream = self._tokenizer.stream(())
        return characters("".join([*map(stream.push, tokens), stream.flush()]))


def characters(text: str) -> tuple[int, ...]:
    """Text as what answers are made of: that a prefix of it is a prefix."""
    return tuple(map(ord, text))


class Programs:
    """OpenAI's client, streaming and not; it has a connection pool of its own."""

    name = "api"

    def __init__(self, scene: Scene, answers: RightAnswers, server: str) -> None:
        self._scene = scene
        self._answers = answers
        self._server = server
        self._words = Words(answers.path)
        self._clients: dict[str, openai.AsyncOpenAI] = {}

    def _client(self) -> openai.AsyncOpenAI | None:
        """For where the server is now; None where it is not."""
        running = [life for life in self._scene.running() if life.name == self._server]
        if not running:
            return None
        url = f"http://{running[0].address}/v1"
        if url not in self._clients:
            key = (self._scene.directory / self._server / API_KEY).read_text().strip()
            self._clients[url] = openai.AsyncOpenAI(
                base_url=url, api_key=key, max_retries=0, timeout=CALL_S
            )
        return self._clients[url]

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        """One call, with all its choices; nothing when there is no server."""
        client = self._client()
        if client is None:
            await asyncio.sleep(TICK_S)
            return []
        began = time.time()
        texts = [""] * ask.count
        code, error, left = 0, "", False
        leave_s = ask.after if ask.end == "seconds" else None
        try:
            async with asyncio.timeout(leave_s):
                left = await self._take(client, ask, question, texts)
        except TimeoutError:
            left = True
        except Exception as problem:
            code, error = _code(problem), f"{type(problem).__name__}: {problem}"
            if not code:
                raise
        ended = time.time()
        return [
            Answered(
                self.name, characters(text), self._right(question, ask, index), began, ended,
                code, left, error,
            )
            for index, text in enumerate(texts)
        ]  # fmt: skip

    def _right(self, question: Question, ask: Ask, index: int) -> tuple[int, ...]:
        return self._words.text(self._answers.right_turn(question, ask.tokens, index))

    async def _take(
        self, client: openai.AsyncOpenAI, ask: Ask, question: Question, texts: list[str]
    ) -> bool:
        """Take the answers as the plan says; whether they were left before their end."""
        sampling: dict[str, Any] = {"temperature": 0.0}
        if question.seed is not None:
            sampling = {"temperature": 1.0, "seed": question.seed}
        call = client.completions.create(
            model=self._answers.name,
            prompt=question.text,
            max_tokens=ask.tokens,
            n=ask.count,
            stream=ask.streamed,
            **sampling,
        )
        answer: Any = await call
        if not ask.streamed:
            for choice in answer.choices:
                texts[choice.index] = choice.text
            return False
        pieces = 0
        ended: set[int] = set()
        async with answer as stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    texts[choice.index] += choice.text or ""
                    if choice.finish_reason:
                        ended.add(choice.index)
                pieces += 1
                if ask.end == "tokens" and pieces > ask.after:
                    return len(ended) < ask.count
        if len(ended) < ask.count:
            raise ChannelClosed("the stream ended before the answer did")
        return False

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()


def _code(problem: Exception) -> int:
    """The exit code that an error of the client stands for; 0 for what is no error of a call."""
    if isinstance(problem, openai.APIConnectionError | ChannelClosed):
        return GONE
    if isinstance(problem, openai.APIStatusError):
        return CODES.get(problem.status_code, 1)
    if isinstance(problem, openai.APIError):
        # In the middle of a stream there is no status any more.
        return {"internal_error": 1, "rate_limit_exceeded": 6}.get(problem.code or "", 7)
    # What carries the client's bytes tells by itself of a connection that ends in a stream.
    return GONE if type(problem).__module__.startswith("httpx") else 0
