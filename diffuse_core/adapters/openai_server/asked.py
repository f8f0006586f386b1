"""What a request of the API comes to: one or several generations, and how they are told."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from diffuse_core.adapters.openai_server.errors import invalid, unsupported
from diffuse_core.adapters.openai_server.messages import asking_for_json, chat_messages
from diffuse_core.adapters.openai_server.tool_fields import offered_tools
from diffuse_core.adapters.openai_server.unsupported import is_given
from diffuse_core.domain.alternatives import MAX_ALTERNATIVES, alternative_seed
from diffuse_core.domain.decoding import MAX_TOKEN_ID, SamplingParams
from diffuse_core.domain.view import GenerateRequest

if TYPE_CHECKING:
    from diffuse_core.adapters.openai_server.bodies import (
        ChatFields,
        Fields,
        ResponseFormat,
        TextFields,
    )
    from diffuse_core.adapters.openai_server.limits import ApiLimits

_SMALLEST_SHARE = 1e-9
"""As `top_p` it keeps the likeliest token, which is what 0 means."""

_Prompt: TypeAlias = str


@dataclass(frozen=True)
class Asked:
    """A request, understood: each of `prompts` (None: the messages) is answered `n` times."""

    request: GenerateRequest
    n: int
    prompts: tuple[_Prompt | None, ...] = (None,)
    stream: bool = False
    include_usage: bool = False
    report: bool = False
    one_call: bool = False
    """Of the calls that a choice makes only the first is told."""

    def generations(self, model: str) -> list[GenerateRequest]:
        """The generations in the order of their choices' indices, each with its seed.

        Each prompt's first choice has the seed that was asked for, and so is the answer that
        would come alone.
        """
        changed, sampling = msgspec.structs.replace, self.request.sampling
        seeds = [alternative_seed(sampling.seed, index) for index in range(self.n)]
        return [
            changed(self.request, model=model, raw=prompt, sampling=changed(sampling, seed=seed))
            for prompt in self.prompts
            for seed in seeds
        ]


def chat_asked(fields: ChatFields, limits: ApiLimits) -> Asked:
    """What a chat completion's body asks for. Raises ApiError."""
    messages = chat_messages(fields.messages, limits)
    if _wants_json(fields.response_format):
        messages = asking_for_json(messages)
    if fields.top_logprobs and not fields.logprobs:
        raise invalid("top_logprobs", "it needs `logprobs: true`; add that")
    both = {fields.max_tokens, fields.max_completion_tokens} - {None}
    if len(both) > 1:
        raise invalid("max_tokens", "it differs from max_completion_tokens; send one of them")
    most = fields.max_completion_tokens or fields.max_tokens
    logprobs = (fields.top_logprobs or 0) if fields.logprobs else None
    request = _request(fields, most, logprobs, limits)
    request = msgspec.structs.replace(request, messages=messages, tools=offered_tools(fields))
    asked = _asked(fields, request, (None,))
    return replace(asked, one_call=fields.parallel_tool_calls is False)


def text_asked(fields: TextFields, limits: ApiLimits) -> Asked:
    """What a text completion's body asks for. Raises ApiError."""
    prompts = _prompts(fields.prompt, limits)
    n = fields.n or 1
    if n * len(prompts) > MAX_ALTERNATIVES:
        raise invalid("n", f"prompts times n may be {MAX_ALTERNATIVES}; ask for fewer at once")
    if fields.best_of is not None and fields.best_of != n:
        raise unsupported("best_of", "all choices are given; ask for them with `n`")
    request = _request(fields, fields.max_tokens, fields.logprobs, limits)
    return _asked(fields, request, prompts)


def _asked(fields: Fields, request: GenerateRequest, prompts: tuple[str | None, ...]) -> Asked:
    options = fields.stream_options
    if options is not None and not fields.stream:
        raise invalid("stream_options", "it needs `stream: true`; add that")
    if options is not None and options.include_obfuscation:
        why = "nothing is added to chunks; leave it out"
        raise unsupported("include_obfuscation", why, "stream_options.include_obfuscation")
    return Asked(
        request,
        fields.n or 1,
        prompts,
        stream=bool(fields.stream),
        include_usage=options is not None and bool(options.include_usage),
        report=fields.diffuse is not None and fields.diffuse.report,
    )


def _request(
    fields: Fields, most: int | None, logprobs: int | None, limits: ApiLimits
) -> GenerateRequest:
    least = fields.min_tokens or 0
    tokens = most if most is not None else max(limits.default_tokens, least)
    if least > tokens:
        raise invalid("min_tokens", "it is more than max_tokens; lower it")
    stop = (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())
    request = GenerateRequest(
        model=fields.model,
        max_tokens=tokens,
        sampling=_sampling(fields),
        stop=stop,
        ignore_eos=bool(fields.ignore_eos),
        min_tokens=least,
        logprobs=logprobs,
    )
    if fields.diffuse is not None and fields.diffuse.grace_s is not None:
        request = msgspec.structs.replace(request, grace_s=fields.diffuse.grace_s)
    return request


def _sampling(fields: Fields) -> SamplingParams:
    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    seed = secrets.randbits(63) if fields.seed is None else fields.seed % 2**63
    return SamplingParams(
        temperature=given(fields.temperature, 1.0),
        top_p=max(given(fields.top_p, 1.0), _SMALLEST_SHARE),
        top_k=max(fields.top_k or 0, 0),
        seed=seed,
        min_p=given(fields.min_p, 0.0),
        repetition_penalty=given(fields.repetition_penalty, 1.0),
        presence_penalty=given(fields.presence_penalty, 0.0),
        frequency_penalty=given(fields.frequency_penalty, 0.0),
        logit_bias=tuple((_token(name), bias) for name, bias in (fields.logit_bias or {}).items()),
    )


def _token(name: str) -> int:
    digits = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0")
    if not digits or len(name) > len(str(MAX_TOKEN_ID)) or int(name) > MAX_TOKEN_ID:
        raise invalid("logit_bias", 'its names are token ids, such as "1734"; correct them')
    return int(name)


def _wants_json(wanted: ResponseFormat | None) -> bool:
    if wanted is None or wanted.type == "text":
        return False
    if wanted.type == "json_object" and not is_given(wanted.json_schema):
        return True
    why = (
        "the model is not constrained to a form; ask for it in a message, maybe with "
        '{"type": "json_object"}'
    )
    raise unsupported(wanted.type, why, "response_format")


def _prompts(raw: msgspec.Raw, limits: ApiLimits) -> tuple[str, ...]:
    try:
        given: str | list[str] = msgspec.json.decode(raw, type=str | list[str])
    except msgspec.ValidationError:
        raise unsupported(
            "prompt", "it may be a text or a list of texts, and no token ids; send the text"
        ) from None
    prompts = (given,) if isinstance(given, str) else tuple(given)
    if not 0 < len(prompts) <= MAX_ALTERNATIVES or not all(prompts):
        raise invalid("prompt", f"1 to {MAX_ALTERNATIVES} texts are expected, none of them empty")
    if sum(map(len, prompts)) > limits.characters or max(map(len, prompts)) > 1_000_000:
        raise invalid("prompt", f"it may have {limits.characters} characters; shorten it")
    return prompts
