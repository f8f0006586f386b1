"""What the Stages of a Session are told at its beginning: its terms, and the rows there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from diffuse_core.domain.decoding import DecodingParams
from diffuse_core.domain.messages import MAX_ROWS, ForwardTokens, Hop, OpenSession
from diffuse_core.domain.session_memory import Wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diffuse_core.services.answer_log import AnswerLog
    from diffuse_core.services.links import Link
    from diffuse_core.services.own_stages import OwnStages


def _none(_layer: int) -> tuple[int, ...]:
    return ()


@dataclass(frozen=True)
class Asked:
    """What a Session is opened with, beside the answer so far.

    `own` has the Stages that the Client runs itself, in private mode. `spots` are the
    coordinates of rows that a Stage from a layer on is to keep, for audits.
    """

    model: str
    fingerprint: str
    speculate: bool = True
    timed: bool = False
    own: OwnStages | None = None
    spots: Callable[[int], tuple[int, ...]] = _none

    def is_own(self, node: bytes) -> bool:
        """Whether a Stage runs here, in private mode: no other could take its place."""
        return self.own is not None and self.own.node == node

    def own_link(self, hop: Hop) -> Link | None:
        """The way to a Stage that runs here."""
        if self.own is None or hop.node != self.own.node:
            return None
        return self.own.link(hop.part)


class Course(Protocol):
    """The Route of a Session, at some epoch."""

    session: bytes
    epoch: int
    route: tuple[Hop, ...]


def opening(
    asked: Asked, log: AnswerLog, course: Course, index: int, run_ahead: int
) -> OpenSession:
    """The request to the Stage at `index`, which grants `run_ahead` tokens.

    What is drawn, and when it ends, is nobody's business but the last Stage's.
    """
    is_last = index == len(course.route) - 1
    sampling = log.decoding.sampling
    return OpenSession(
        course.session,
        asked.model,
        asked.fingerprint,
        course.route,
        index,
        log.budget,
        len(log.prompt),
        log.decoding if is_last else DecodingParams(log.decoding.max_tokens),
        run_ahead,
        epoch=course.epoch,
        drawn=len(log.drawn),
        past=tuple(log.drawn) if is_last and sampling.needs_past else (),
        seen=tuple(sorted(set(log.prompt))) if is_last and sampling.needs_seen else (),
        timed=asked.timed,
        spots=asked.spots(course.route[index].part.start),
    )


def wishes(asked: Asked, log: AnswerLog, route: Sequence[Hop], index: int) -> Wishes:
    """What the Stage at `index` will count with that is asked by `opening`."""
    sampling = log.decoding.sampling
    is_last = index == len(route) - 1
    return Wishes(
        len(log.prompt),
        len(asked.spots(route[index].part.start)),
        log.decoding.logprobs if is_last else None,
        is_last and sampling.needs_past,
        len(sampling.logit_bias) if is_last else 0,
        timed=asked.timed,
        index=index,
    )


class Said(Protocol):
    """Tokens of a prompt, and those drawn after it."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """Of the prompt."""
        ...

    @property
    def drawn(self) -> Sequence[int]:
        """Of the answer so far."""
        ...


def pieces(log: Said, course: Course, position: int) -> list[ForwardTokens]:
    """What the first Stage lacks from `position` on: the prompt, and what was drawn.

    In messages cut at the same places however often it is sent, for a row's last bits may depend
    on the rows computed with it; and none that has tokens of both.
    """
    made = []
    for start, tokens in ((0, log.prompt), (len(log.prompt), log.drawn)):
        end, at = start + len(tokens), max(start, position)
        while at < end:
            cut = min(end, start + ((at - start) // MAX_ROWS + 1) * MAX_ROWS)
            piece = tuple(tokens[at - start : cut - start])
            made.append(ForwardTokens(course.session, at, piece, course.epoch))
            at = cut
    return made
