"""How the next answers are to be made: what a user may set for a conversation."""

from __future__ import annotations

import msgspec

from diffuse_core.domain.decoding import SamplingParams

DEFAULT_MAX_TOKENS = 1024


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a conversation; the defaults are those of `diffuse chat`.

    `max_tokens` is per answer. `seed` None: another one for every answer.
    `audit` is the chance that the work of a Stage is computed again elsewhere, and compared.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    stop: tuple[str, ...] = ()
    speculate: bool = True
    audit: float = 0.0


PRESETS: dict[str, Params] = {
    "precise": Params(),
    "balanced": Params(temperature=0.7, top_p=0.95),
    "creative": Params(temperature=1.0, top_p=0.98, min_p=0.02, presence_penalty=0.3),
}
"""What each preset says of the choice among tokens; the rest of it is not looked at."""

CHOICE = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Fields that tell how a token is chosen."""


def with_preset(params: Params, name: str) -> Params:
    """`params`, tokens chosen as `name` has it; seed, length and stop strings stay.

    Raises:
        KeyError: there is no such preset.
    """
    preset = PRESETS[name]
    return msgspec.structs.replace(params, **{each: getattr(preset, each) for each in CHOICE})


def preset_of(params: Params) -> str | None:
    """The preset by which tokens are chosen, None where it is the user's own choice."""
    for name, preset in PRESETS.items():
        if all(getattr(params, each) == getattr(preset, each) for each in CHOICE):
            return name
    return None


def out_of_bounds(params: Params) -> str:
    """Why no network may be asked with `params`, "" when it may."""
    from diffuse_core.domain.view import GenerateRequest

    asked = {
        "model": "any",
        "sampling": msgspec.to_builtins(to_sampling(params, 0)),
        "max_tokens": params.max_tokens,
        "stop": params.stop,
        "audit": params.audit,
    }
    try:
        msgspec.convert(asked, GenerateRequest)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def to_sampling(params: Params, seed: int) -> SamplingParams:
    """What travels with a question; `seed` counts where the conversation has none of its own."""
    choice = {each: getattr(params, each) for each in CHOICE}
    return SamplingParams(**choice, seed=seed if params.seed is None else params.seed)
