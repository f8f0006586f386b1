"""The bodies of requests, as the API's reference has them; what is not here is refused.

Beside OpenAI's fields there are vLLM's `top_k`, `min_p`, `repetition_penalty`, `min_tokens` and
`ignore_eos`, with its meanings, and one of our own: `diffuse`, see `Extra`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from diffuse_core.domain.alternatives import MAX_ALTERNATIVES
from diffuse_core.domain.decoding import MAX_BIASES, MAX_LOGPROBS, MAX_TOKENS
from diffuse_core.domain.tools import MAX_TOOL_CALLS, MAX_TOOLS

MAX_PARTS = 256
MAX_STOPS = 16
MAX_TEXT_LOGPROBS = 5
ABSENT = msgspec.Raw(b"")

Word = Annotated[str, msgspec.Meta(max_length=256)]
Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Penalty = Annotated[float, msgspec.Meta(ge=-2.0, le=2.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Bias = Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message's content; only text is taken."""

    type: Word
    text: Text | None = None
    image_url: msgspec.Raw = ABSENT
    input_audio: msgspec.Raw = ABSENT
    video_url: msgspec.Raw = ABSENT
    file: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """What an assistant asked to be called; `arguments` is a JSON object as text."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    arguments: str = "{}"


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """A call in an assistant's message. Who puts one together of a stream may keep its `index`."""

    id: Word
    function: CalledFunction | None = None
    type: Word = "function"
    index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    custom: msgspec.Raw = ABSENT


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """A turn of the conversation.

    `reasoning_content` (DeepSeek's, and what templates of models call it) and `reasoning` (vLLM's)
    are one: clients tell what a model thought apart from what it said.
    """

    role: Word
    content: Text | Annotated[list[Part], msgspec.Meta(max_length=MAX_PARTS)] | None = None
    name: Word | None = None
    tool_calls: Annotated[list[Call], msgspec.Meta(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: Word | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    refusal: msgspec.Raw = ABSENT
    audio: msgspec.Raw = ABSENT
    annotations: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT


class Function(msgspec.Struct, forbid_unknown_fields=True):
    """A function that the model may ask for; `parameters` is a JSON schema."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Annotated[str, msgspec.Meta(max_length=65_536)] | None = None
    parameters: msgspec.Raw = ABSENT
    strict: bool | None = None


class ToolField(msgspec.Struct, forbid_unknown_fields=True):
    """A tool; only functions are taken."""

    type: Word
    function: Function | None = None
    custom: msgspec.Raw = ABSENT


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How a stream is given."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """The form of the answer: "text", or "json_object" as best the model can."""

    type: Word
    json_schema: msgspec.Raw = ABSENT
    grammar: msgspec.Raw = ABSENT


class Extra(msgspec.Struct, forbid_unknown_fields=True):
    """Our own field `diffuse`.

    `grace_s` is how long a lost Stage is waited for when there is no replica. With `report` the
    answer has a `diffuse` object as well: for each choice its seed, Route, timings and events.
    """

    grace_s: Annotated[float, msgspec.Meta(ge=0.0, le=600.0)] | None = None
    report: bool = False


class Fields(msgspec.Struct, kw_only=True):
    """What both kinds of completions have."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_ALTERNATIVES)] | None = None
    stop: Stop | Annotated[list[Stop], msgspec.Meta(max_length=MAX_STOPS)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[Word, Bias], msgspec.Meta(max_length=MAX_BIASES)] | None = None
    max_tokens: Tokens | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Word | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**24)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100.0)] | None = None
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None = None
    ignore_eos: bool | None = None
    diffuse: Extra | None = None


class ChatFields(Fields, kw_only=True):
    """What /v1/chat/completions takes."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: Annotated[list[ToolField], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: msgspec.Raw = ABSENT
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None


class TextFields(Fields, kw_only=True):
    """What /v1/completions takes."""

    prompt: msgspec.Raw
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_TEXT_LOGPROBS)] | None = None
    best_of: Annotated[int, msgspec.Meta(ge=1, le=MAX_ALTERNATIVES)] | None = None
