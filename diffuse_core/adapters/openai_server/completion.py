"""One request's answer: its generations, collected or told as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diffuse_core.adapters.openai_server.logprobs import Words
from diffuse_core.adapters.openai_server.shapes import new_id, usage
from diffuse_core.adapters.openai_server.telling import new_choices
from diffuse_core.domain.view import RouteChosen

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.asked import Asked
    from diffuse_core.adapters.openai_server.choices import Choices
    from diffuse_core.adapters.openai_server.shapes import Shape
    from diffuse_core.adapters.openai_server.telling import Choice
    from diffuse_core.domain.tools import ToolFormat
    from diffuse_core.domain.view import GenerateEvent, GenerateRequest, ModelView
    from diffuse_core.ports import Answers


class Completion:
    """What is told of an answer of `model`, in one of the API's shapes."""

    def __init__(
        self,
        answers: Answers,
        asked: Asked,
        model: ModelView,
        shape: Shape,
        created: int,
        calls: ToolFormat | None,
    ) -> None:
        """`created` is Unix time; `calls` tells in what form calls are looked for, if any."""
        # All choices, and the texts of tokens, are of the same weights.
        pinned = f"{model.id}@{model.fingerprint}"
        self.requests: list[GenerateRequest] = asked.generations(pinned)
        self._asked = asked
        self._shape = shape
        self._words = Words(answers, pinned)
        self._choices = new_choices(self.requests, calls, one_call=asked.one_call)
        self._head = {
            "id": new_id(shape.prefix),
            "created": created,
            # A name that would be another variant's if it was sent back is not told.
            "model": pinned if "@" in asked.request.model else model.id,
            "system_fingerprint": model.fingerprint,
        }

    async def whole(self, running: Choices) -> dict[str, Any]:
        """The answer, once it is complete.

        Raises:
            ApiError, DiffuseError: a generation failed.
        """
        while not running.complete:
            if (news := await running.next()) is not None:
                self._choices[news[0]].note(news[1])
        told: list[dict[str, Any]] = []
        for choice in self._choices:
            # One by one: of many words the first are forgotten.
            await self._words.learn(choice.entries)
            told.append(self._shape.whole(choice, self._words))
        answer = {
            **self._head,
            "object": self._shape.whole_object,
            "choices": told,
            "usage": self._usage(),
        }
        return answer | self._report()

    async def chunks(self, index: int, event: GenerateEvent) -> list[dict[str, Any]]:
        """What is told of an event, in a stream."""
        choice = self._choices[index]
        pieces = choice.note(event)
        members: list[dict[str, Any]] = []
        if isinstance(event, RouteChosen) and (opening := self._shape.opening(index)) is not None:
            members.append(opening)
        for piece in pieces:
            await self._words.learn(piece.entries)
            members.append(self._shape.piece(choice, piece, self._words))
        # What was told is not needed any more.
        choice.pieces.clear()
        if choice.finished is not None:
            members.append(self._shape.ending(choice))
        return [self._chunk([member]) for member in members]

    def last_chunks(self) -> list[dict[str, Any]]:
        """What follows the choices in a stream: the usage, where it is asked for."""
        if not self._asked.include_usage and not self._asked.report:
            return []
        last = self._chunk([])
        if self._asked.include_usage:
            last["usage"] = self._usage()
        return [last | self._report()]

    def _chunk(self, members: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {**self._head, "object": self._shape.chunk_object, "choices": members}
        if self._asked.include_usage:
            chunk["usage"] = None
        return chunk

    def counts(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer, as far as it is complete."""
        told = self._usage()
        return told["prompt_tokens"], told["completion_tokens"]

    def _usage(self) -> dict[str, int]:
        return usage(self._choices, self._asked.n)

    def _report(self) -> dict[str, Any]:
        if not self._asked.report:
            return {}
        return {"diffuse": {"choices": [_reported(choice) for choice in self._choices]}}


def _reported(choice: Choice) -> dict[str, Any]:
    """How a choice came about."""
    finished = choice.finished
    return {
        "index": choice.index,
        "seed": choice.request.sampling.seed,
        "route": msgspec.to_builtins(choice.route),
        "timings": None if finished is None else msgspec.to_builtins(finished.timings),
        "events": [] if finished is None else list(finished.events),
    }
