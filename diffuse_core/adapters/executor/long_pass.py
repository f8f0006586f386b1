"""A pass of many rows that is run bit by bit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from diffuse_core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from diffuse_core.model_ports import StageResult

    Work = Generator[None, None, torch.Tensor | None]
    Finish = Callable[[torch.Tensor | Refused | None, float], StageResult | Refused]

FAILURES = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What arithmetic may raise: it ends the Session it happened in, and no other."""


def failed(error: BaseException) -> Refused:
    """What is said of a pass that raised: no fault of what came in."""
    return Refused(f"the pass failed, the session was closed: {error}", "lost")


class EngineLongPass:
    """Implements model_ports.LongPass over an engine's generator."""

    def __init__(self, work: Work, finish: Finish) -> None:
        """`finish` is told the output or failure and the seconds it took, once."""
        self._work = work
        self._finish = finish
        self._seconds = 0.0
        self._abandoned = False

    def advance(self, seconds: float) -> StageResult | Refused | None:
        """Work on for about `seconds`; what came of it, once it is done."""
        if self._abandoned:
            return Refused("the session was closed during the pass; open a new session")
        output: torch.Tensor | Refused | None
        started = time.perf_counter()
        try:
            with torch.inference_mode():
                while True:
                    next(self._work)
                    spent = time.perf_counter() - started
                    if spent >= seconds:
                        self._seconds += spent
                        return None
        except StopIteration as end:
            output = end.value
        except FAILURES as error:
            output = failed(error)
        self._seconds += time.perf_counter() - started
        return self._finish(output, self._seconds)

    def abandon(self) -> None:
        """Give up: the Session was closed. Frees what the pass holds."""
        self._abandoned = True
        self._work.close()
