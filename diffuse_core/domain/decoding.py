"""What a generation was asked to do: sampling parameters, stop conditions, how it ended."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diffuse_core.errors import UsageError

MAX_TOKEN_ID = 2**24
TokenId = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
MAX_TOKENS = 2**20

MAX_LOGPROBS = 20
MAX_BIASES = 1024
MAX_BIAS = 1000.0

Penalty = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]
Bias = tuple[TokenId, Annotated[float, msgspec.Meta(ge=-MAX_BIAS, le=MAX_BIAS)]]
"""A token, and what is added to its logit."""

FinishReason = Literal["stop", "length", "cancelled"]


class SamplingParams(msgspec.Struct, frozen=True):
    """How the next token is chosen from the logits.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch those filters off. `seed` keys the
    counter-based generator: the same seed and position give the same draw on every machine.

    `min_p` keeps tokens with at least this share of the likeliest one's probability.
    `repetition_penalty` divides positive logits of tokens of prompt and answer, and multiplies
    negative ones (Keskar et al., CTRL, 2019); `presence_penalty` is subtracted from the logits of
    tokens of the answer, `frequency_penalty` once for each time that they are in it (as the
    OpenAI API has them). `logit_bias` is added; tokens that the model does not have are passed
    over. In which order all this is done, domain.sampling tells.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 0.0
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**24)] = 0
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    min_p: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100.0)] = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Annotated[tuple[Bias, ...], msgspec.Meta(max_length=MAX_BIASES)] = ()

    @property
    def needs_seen(self) -> bool:
        """Whether a draw depends on the tokens of the prompt."""
        return self.repetition_penalty != 1.0

    @property
    def needs_past(self) -> bool:
        """Whether a draw depends on the tokens drawn before it."""
        return self.needs_seen or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities at one position, as the model itself gave them.

    That is before bias, penalties, temperature and filters (vLLM's `raw_logprobs`), so they tell
    what the model thinks, also of a token that a filter would have barred. Of the drawn token,
    and of the likeliest ones with their ids: the likeliest first, the lower id first among equals.
    """

    drawn: float
    top: Annotated[tuple[tuple[TokenId, float], ...], msgspec.Meta(max_length=MAX_LOGPROBS)] = ()


class Drawn(msgspec.Struct, frozen=True):
    """A token that was drawn; with `logprobs` where they were asked for."""

    token: int
    logprobs: TokenLogprobs | None = None


class DecodingParams(msgspec.Struct, frozen=True):
    """When the last Stage ends a generation. `stop_ids` empty means: only length ends it.

    Before `min_tokens` none of `stop_ids` is drawn. `logprobs` None asks for none, else for
    those of the drawn token and of so many likeliest ones.
    """

    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
    sampling: SamplingParams = SamplingParams()
    stop_ids: Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=64)] = ()
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] = 0
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None


def check_vocabulary(sampling: SamplingParams, vocab: int) -> None:
    """Refuse a bias on a token that a model of `vocab` tokens does not have.

    Raises:
        UsageError: there is one.
    """
    for token, _ in sampling.logit_bias:
        if token >= vocab:
            raise UsageError(
                f"there is no token {token} to give a bias (logit_bias): the model has {vocab}, "
                "counted from 0"
            )
