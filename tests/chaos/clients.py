"""Those who ask: a client that stays, the app's attachment to a node, and `query` processes.

Each gives what it got as `Answered`; that an answer takes too long is for the caller to see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from diffuse_core import wiring
from diffuse_core.domain.view import Failed, Finished, GenerateRequest, Healed, TextDelta
from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError
from tests.chaos.ledger import Answered
from tests.e2e.processes import environment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from diffuse_core.domain.view import GenerateEvent
    from diffuse_core.services.attachment import NodeAttachment
    from tests.chaos.load_plan import Ask
    from tests.chaos.questions import Question, RightAnswers
    from tests.chaos.scene import Scene

GRACE_S = 20.0
AGAIN_S = 0.5
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
ENDED_BY = {"kill": {-9}, "term": {128 + 15, -15}, "int": {EXIT_INTERRUPTED, -2}}
"""Negative: before the command could do anything about the signal, while Python starts."""
OURS = "diffuse_core"
"""A traceback without a module of ours is of Python's own start."""
MAX_OUTPUT = 2**22


class Asker(Protocol):
    """A kind of client."""

    name: str

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        """Ask once, and take the answers as the plan says."""
        ...

    async def close(self) -> None:
        """Ask no more."""
        ...


def request_of(model: str, ask: Ask, question: Question) -> GenerateRequest:
    """What the plan asks for, of one answer."""
    return GenerateRequest(
        model=model,
        raw=question.text,
        max_tokens=ask.tokens,
        sampling=question.sampling,
        ignore_eos=True,
        speculate=ask.speculate,
        grace_s=GRACE_S,
    )


class _Taken:
    """An answer as it comes."""

    def __init__(self, client: str, right: tuple[int, ...], heals: list[float]) -> None:
        self._client = client
        self._right = right
        self._heals = heals
        self._began = time.time()
        self.tokens: list[int] = []
        self.left = False
        self.code = 0
        self.error = ""

    async def take(self, events: AsyncGenerator[GenerateEvent, None], ask: Ask) -> None:
        """Take events to the end, or as far as the plan says."""
        left_at = ask.after if ask.end == "tokens" else None
        leave_s = ask.after if ask.end == "seconds" else None
        try:
            async with asyncio.timeout(leave_s), aclosing(events):
                async for event in events:
                    if isinstance(event, TextDelta):
                        self.tokens += event.token_ids
                    elif isinstance(event, Healed):
                        self._heals.append(event.seconds)
                    elif isinstance(event, Failed):
                        self.code, self.error = event.exit_code, event.message
                    if left_at is not None and len(self.tokens) >= left_at:
                        self.left = not isinstance(event, Finished)
                        break
        except TimeoutError:
            self.left = True
        except DiffuseError as error:
            self.code, self.error = error.exit_code, str(error)

    def answered(self) -> Answered:
        """What came of it."""
        return Answered(
            self._client, tuple(self.tokens), self._right, self._began, time.time(),
            self.code, self.left, self.error,
        )  # fmt: skip


class StayingClient:
    """The client of this process, which is there all the time."""

    name = "client"

    def __init__(self, scene: Scene, answers: RightAnswers) -> None:
        self._scene = scene
        self._answers = answers

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        """One answer; others of `side_by_side` are asked beside it."""
        assert self._scene.client is not None
        right = self._answers.right(question, ask.tokens)
        taken = _Taken(self.name, right, self._scene.ledger.heals)
        request = request_of(self._answers.name, ask, question)
        await taken.take(self._scene.client.generate(request), ask)
        return [taken.answered()]

    async def close(self) -> None:
        """Nothing to do: the scene has it."""


class App:
    """Asks through a node that it is attached to as its owner, as the app does."""

    name = "app"

    def __init__(self, scene: Scene, answers: RightAnswers, node: str) -> None:
        self._scene = scene
        self._answers = answers
        self._node = node
        self._attached: NodeAttachment | None = None
        self._turn = asyncio.Lock()

    async def _attachment(self) -> NodeAttachment:
        async with self._turn:
            if self._attached is None:
                directory = self._scene.directory / self._node
                self._attached = await wiring.attach(directory, self._scene.network)
            return self._attached

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        """One answer; nothing when there is no node to attach to."""
        try:
            attached = await self._attachment()
        except DiffuseError:
            await asyncio.sleep(AGAIN_S)
            return []
        right = self._answers.right(question, ask.tokens)
        taken = _Taken(self.name, right, self._scene.ledger.heals)
        request = request_of(self._answers.name, ask, question)
        await taken.take(attached.generate(request), ask)
        if taken.code == 5:
            await self._detach(attached)
        return [taken.answered()]

    async def _detach(self, attached: NodeAttachment) -> None:
        if attached is self._attached:
            self._attached = None
            await attached.close()

    async def close(self) -> None:
        """Detach."""
        if self._attached is not None:
            await self._detach(self._attached)


class Queries:
    """`query` processes, one after the other; some are struck by signals."""

    name = "query"

    def __init__(self, scene: Scene, answers: RightAnswers) -> None:
        self._scene = scene
        self._answers = answers

    def words(self, ask: Ask, question: Question, *extra: str) -> list[str]:
        """The command line, without the program."""
        seeded = ["--seed", str(question.seed), "--temperature", "1"] if question.seed else []
        return [
            "query", "--json", "--raw", "--ignore-eos", "--model", self._answers.name,
            "--bootstrap", self._scene.bootstrap, *self._scene.network.arguments(),
            "--max-tokens", str(ask.tokens), "--n", str(ask.count), "--grace", f"{GRACE_S:g}",
            *seeded, *extra,
        ]  # fmt: skip

    async def run(self, words: list[str], text: str, ask: Ask | None) -> tuple[int, str, str]:
        """Run one to its end; the prompt goes through a pipe, where no other user sees it."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "diffuse_core", *words, stdin=pipe, stdout=pipe, stderr=pipe,
            env=environment(self._scene.directory), limit=MAX_OUTPUT,
        )  # fmt: skip
        blow = asyncio.create_task(_strike(process, ask)) if ask and ask.blow else None
        try:
            out, err = await process.communicate(text.encode())
        finally:
            if blow is not None:
                blow.cancel()
                await asyncio.wait([blow])
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    async def ask(self, ask: Ask, question: Question) -> list[Answered]:
        """Its answers."""
        began = time.time()
        code, out, err = await self.run(self.words(ask, question), question.text, ask)
        early = ask.blow == "int" and "KeyboardInterrupt" in err and OURS not in err
        struck = early or code in ENDED_BY.get(ask.blow, ())
        told = self._told(out)
        if "Traceback" in err and not early:
            self._scene.ledger.violation(f"query ({ask.blow}): exit {code}: {err[-2500:]}")
        if not told:
            code, left = (0, True) if struck else (code, False)
            return [Answered(self.name, (), (0,), began, time.time(), code, left, err[-300:])]
        found = []
        for index, one in enumerate(told):
            tokens = tuple(one["token_ids"])
            reason = one["finish_reason"]
            left = reason == "cancelled" or (struck and reason == "error")
            # One of several may have broken off, which is not this one's fault; the code of one
            # that was struck tells of the blow.
            broke = code if reason == "error" and not struck else 0
            right = self._answers.right(question, ask.tokens, index)
            error = one.get("error", err[-300:])
            found.append(
                Answered(self.name, tokens, right, began, time.time(), broke, left, error)
            )
        if code and not struck and not any(answer.code for answer in found):
            self._scene.ledger.violation(f"query: all answers ended well, and exit {code}: {err}")
        return found

    def _told(self, out: str) -> list[dict[str, Any]]:
        """The answers that it printed."""
        if not out.strip():
            return []
        try:
            told = json.loads(out)
        except json.JSONDecodeError:
            return []
        return list(told.get("choices") or [told])

    async def close(self) -> None:
        """Nothing to do: each process ends by itself."""


async def _strike(process: asyncio.subprocess.Process, ask: Ask) -> None:
    """Do to a client what the plan says, some time after its start."""
    await asyncio.sleep(0.3 + ask.after % 1.0 * 2)
    with contextlib.suppress(ProcessLookupError):
        if ask.blow == "pause":
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2.0)
            process.send_signal(signal.SIGCONT)
        else:
            process.send_signal(SIGNALS[ask.blow])
