"""What is sent for a question: the context, and how the answer is to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diffuse_core.domain.context import TOKEN_CHARS, context, room
from diffuse_core.domain.view import GenerateRequest
from diffuse_tui.presenter.answerer import name_of
from diffuse_tui.presenter.parameters import DEFAULT_MAX_TOKENS, to_sampling

if TYPE_CHECKING:
    from diffuse_core.domain.view import ModelView
    from diffuse_tui.presenter.talk import Talk


class Asking(NamedTuple):
    """A request, how many of the oldest turns did not fit, and the seed when one counts."""

    request: GenerateRequest
    left_out: int
    seed: int | None


def asking(talk: Talk, model: ModelView, seed: int, chars: float = TOKEN_CHARS) -> Asking:
    """Ask for the answer to the newest turn.

    Args:
        talk: The conversation, its newest turn unanswered.
        model: Who is asked.
        seed: Counts where the user set none.
        chars: Characters of a token: older turns that the model has no positions for stay behind.
    """
    turn = talk.turns[-1]
    params = talk.params
    # Half of the context is for what was said before, unless the user wants it otherwise.
    half = model.context // 2
    most = half if params.max_tokens == DEFAULT_MAX_TOKENS else model.context
    space = room(model.context, params.max_tokens, chars)
    sent = context(talk.turns[:-1], turn.question, talk.system, space)
    sampling = to_sampling(params, seed)
    request = GenerateRequest(
        model=name_of(model),
        messages=sent.messages,
        max_tokens=max(1, min(params.max_tokens, most)),
        sampling=sampling,
        stop=params.stop,
        speculate=params.speculate,
        audit=params.audit,
        timings=True,
    )
    return Asking(request, sent.left_out, sampling.seed if params.temperature > 0 else None)
