"""The load: what clients ask all the time, and what is asked while a range is missing."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.chaos.ledger import DOCUMENTED, Answered
from tests.chaos.load_plan import Ask, draw_asks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.clients import Asker, Queries
    from tests.chaos.ledger import Ledger
    from tests.chaos.questions import Question, RightAnswers

DEADLINE_S = 150.0
"""What a call may take in all: its grace several times over, and the start of a process."""
AGAIN_S = 1.0
"""After an error a client asks again only then, as people and programs do."""
RANGE = re.compile(r"\d+:\d+")
PLAIN = Ask(0.0, 8, "whole", 0.0, 1, 1, "", 0.0, speculate=True, streamed=False)
TRIES = 3


class Load:
    """Askers at work; use as an async context."""

    def __init__(
        self, askers: Sequence[Asker], answers: RightAnswers, ledger: Ledger, seed: int
    ) -> None:
        self._askers = askers
        self._answers = answers
        self._ledger = ledger
        self._seed = seed
        self._going = asyncio.Event()
        self._asking = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._going.set()
        self._tasks = [
            asyncio.create_task(self._work(asker, number))
            for number, asker in enumerate(self._askers)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for asker in self._askers:
            await asker.close()

    def check(self) -> None:
        """Raise what an asker failed of."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def rest(self) -> None:
        """Ask nothing more, and wait for what is under way."""
        self._going.clear()
        while self._asking:  # noqa: ASYNC110  (each has its deadline)
            await asyncio.sleep(0.05)

    def go_on(self) -> None:
        """Ask again."""
        self._going.set()

    async def _work(self, asker: Asker, number: int) -> None:
        for ask in draw_asks(self._seed, f"{asker.name} {number}"):
            await self._going.wait()
            self._asking += 1
            known = replace(ask, tokens=min(ask.tokens, self._answers.most))
            try:
                questions = self._questions(ask)
                well = await asyncio.gather(*(self.one(asker, known, one) for one in questions))
            finally:
                self._asking -= 1
            await asyncio.sleep(ask.then_s if all(well) else AGAIN_S)

    def _questions(self, ask: Ask) -> list[Question]:
        every = self._answers.questions
        first = int(ask.which * len(every))
        return [every[(first + at) % len(every)] for at in range(ask.side_by_side)]

    async def one(self, asker: Asker, ask: Ask, question: Question) -> bool:
        """One question and what came of it; whether that was no error."""
        began = time.time()
        try:
            async with asyncio.timeout(DEADLINE_S):
                found = await asker.ask(ask, question)
        except TimeoutError:
            self._ledger.violation(
                f"{asker.name}: no end within {DEADLINE_S:.0f} s of {ask}, {question.length} words"
            )
            found = []
        except Exception as error:  # noqa: BLE001 - whatever a client gives but its own errors
            self._ledger.violation(f"{asker.name}: {type(error).__name__}: {error} of {ask}")
            right = self._answers.right(question, ask.tokens)
            found = [Answered(asker.name, (), right, began, time.time(), left=True)]
        for answer in found:
            self._ledger.note(answer)
        return not any(answer.code for answer in found)


class Probes:
    """Asks of its own, by `query`, around a range that is missing."""

    def __init__(self, queries: Queries, answers: RightAnswers, ledger: Ledger) -> None:
        self._queries = queries
        self._answers = answers
        self._ledger = ledger

    async def broken(self, seconds: float) -> None:
        """Ask for so long while all holders of a range are gone. Others may take their place."""
        began = time.monotonic()
        while True:
            code, err = await self._ask("--grace", "0")
            self._ledger.codes[f"query of a broken model: exit {code}"] += 1
            if code not in {0, *DOCUMENTED}:
                self._ledger.violation(f"query of a broken model: exit {code}: {err}")
            if code == 4 and not RANGE.search(err):
                self._ledger.violation(f"no range is named: {err}")
            if time.monotonic() - began > seconds:
                return

    async def healed(self) -> None:
        """Ask once it should be well again."""
        told = []
        for _ in range(TRIES):
            code, err = await self._ask()
            if not code:
                return
            told.append(f"exit {code}: {err.strip()}")
            await asyncio.sleep(1)
        self._ledger.violation(f"the model is whole again, and a query gives {told}")

    async def _ask(self, *extra: str) -> tuple[int, str]:
        question = self._answers.questions[0]
        words = self._queries.words(PLAIN, question, *extra)
        try:
            async with asyncio.timeout(DEADLINE_S):
                code, out, err = await self._queries.run(words, question.text, None)
        except TimeoutError:
            return -1, f"no end within {DEADLINE_S:.0f} s"
        if not code:
            (told,) = self._queries._told(out)
            right = self._answers.right(question, PLAIN.tokens)
            if tuple(told["token_ids"]) != right:
                self._ledger.violation(f"query: wrong tokens: {told['token_ids']}, not {right}")
        return code, err
