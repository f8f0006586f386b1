"""Options of how to generate, and the request that they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import adding, finite, not_empty
from diffuse_core.cli.private import private_options
from diffuse_core.domain.alternatives import MAX_ALTERNATIVES
from diffuse_core.domain.decoding import MAX_BIAS, MAX_BIASES, MAX_LOGPROBS, MAX_TOKEN_ID
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.view import ChatMessage, GenerateRequest


def _biases(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[int, float], ...]:
    """Read `ID=VALUE` texts."""
    if len(given) > MAX_BIASES:
        raise click.BadParameter(f"{len(given)} biases are given, {MAX_BIASES} are possible")
    biases: dict[int, float] = {}
    for text in given:
        token, bias = _bias(text)
        if token in biases:
            raise click.BadParameter(f"token {token} is given twice")
        biases[token] = bias
    return tuple(biases.items())


def _bias(text: str) -> tuple[int, float]:
    left, _, right = text.partition("=")
    try:
        token, bias = int(left), float(right)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not ID=VALUE, as 42=-5 for a token id and what to add to its logit"
        ) from None
    if not 0 <= token <= MAX_TOKEN_ID:
        raise click.BadParameter(f"{token} is no token id: they go from 0 to {MAX_TOKEN_ID}")
    if not math.fabs(bias) <= MAX_BIAS:
        raise click.BadParameter(f"{right} is no bias: they go from -{MAX_BIAS:g} to {MAX_BIAS:g}")
    return token, bias


def _number(name: str, low: float, high: float, default: float, text: str) -> Any:
    kind = click.FloatRange(low, high)
    return click.option(
        name, type=kind, callback=finite, default=default, show_default=True, help=text
    )


_drawing = adding(
    _number("--temperature", 0, 100, 0.0, "0 takes the likeliest token; more draws more freely."),
    click.option(
        "--top-p",
        type=click.FloatRange(0, 1, min_open=True),
        callback=finite,
        default=1.0,
        show_default=True,
        help="Keep the likeliest tokens whose chances together make this much.",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0, 2**24),
        default=0,
        show_default=True,
        help="Keep so many likeliest tokens; 0 keeps all.",
    ),
    _number("--min-p", 0, 1, 0.0, "Keep tokens of at least this share of the likeliest's chance."),
    _number(
        "--repetition-penalty",
        0.01,
        100,
        1.0,
        "Above 1 makes tokens of prompt and answer less likely.",
    ),
    _number(
        "--presence-penalty",
        -100,
        100,
        0.0,
        "Taken once from the logit of a token that the answer has already.",
    ),
    _number(
        "--frequency-penalty",
        -100,
        100,
        0.0,
        "Taken from the logit of a token for each time that the answer has it.",
    ),
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="ID=VALUE",
        callback=_biases,
        help="Add VALUE to the logit of a token; -100 bars it. May be repeated.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**63 - 1),
        help="The same seed gives the same text; without it one is drawn.",
    ),
    click.option(
        "--n",
        "count",
        type=click.IntRange(1, MAX_ALTERNATIVES),
        default=1,
        show_default=True,
        help="So many answers at once, each of its own seed; the first has the seed given.",
    ),
    click.option(
        "--logprobs",
        type=click.IntRange(0, MAX_LOGPROBS),
        help="Tell how likely each token was, beside so many likeliest ones.",
    ),
)

_ending = adding(
    click.option(
        "--stop",
        multiple=True,
        metavar="S",
        help="End the answer before this text. May be repeated.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1, 2**20),
        default=512,
        show_default=True,
        help="Most tokens to generate.",
    ),
    click.option(
        "--min-tokens",
        type=click.IntRange(0, 2**20),
        default=0,
        show_default=True,
        help="The end-of-turn token does not come before so many.",
    ),
)

_running = adding(
    _number(
        "--grace",
        0,
        3600,
        20.0,
        "Seconds to wait for a host that can take the place of a lost one, before giving up.",
    ),
    _number(
        "--audit",
        0,
        1,
        0.0,
        "The chance, for each stage, that another host computes its work again, to compare.",
    ),
    click.option(
        "--no-speculation",
        is_flag=True,
        help="Do not guess tokens ahead; the text is the same either way.",
    ),
)

asking = adding(
    click.option(
        "--model",
        metavar="M",
        callback=not_empty,
        help="A model on the network. Not needed where only one can be served.",
    ),
    click.option("--system", metavar="TEXT", help="System prompt."),
    _drawing,
    _ending,
    _running,
    private_options,
)
"""Options of how to generate."""

_SECTIONS = {
    "Drawing tokens": (
        "temperature top_p top_k min_p repetition_penalty presence_penalty frequency_penalty "
        "logit_bias seed count logprobs"
    ),
    "Ending the answer": "max_tokens min_tokens stop ignore_eos",
    "The way it runs": "grace audit no_speculation timings",
    "Private mode": "private private_tail private_model threads",
    "The network": (
        "network network_key network_key_file allow mdns bootstrap state_dir log_level log_format"
    ),
}
_SECTION_OF = {name: title for title, names in _SECTIONS.items() for name in names.split()}


class SectionedCommand(click.Command):
    """A command whose help lists its many options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section, in the order that they were declared."""
        found: dict[str, list[tuple[str, str]]] = {"Options": []}
        found |= {title: [] for title in _SECTIONS}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                found[_SECTION_OF.get(option.name or "", "Options")].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def asked(given: dict[str, Any], model: str, messages: tuple[ChatMessage, ...]) -> GenerateRequest:
    """The request that options make; a seed is drawn where none is given.

    Raises:
        UsageError: two options contradict each other.
    """
    import secrets

    from diffuse_core.domain.decoding import SamplingParams
    from diffuse_core.domain.view import GenerateRequest

    raw = bool(given.get("raw"))
    if raw and given["system"]:
        raise UsageError("--raw sends the prompt as it is; leave out --system")
    if given["min_tokens"] > given["max_tokens"]:
        raise UsageError(
            f"--min-tokens {given['min_tokens']} is more than --max-tokens {given['max_tokens']}"
        )
    stop = tuple(given.get("stop") or ())
    if "" in stop:
        raise UsageError("--stop with an empty text would end no answer; give the text")
    seed = given["seed"]
    return GenerateRequest(
        model=model,
        messages=() if raw else messages,
        raw=messages[-1].content if raw else None,
        max_tokens=given["max_tokens"],
        sampling=SamplingParams(
            temperature=given["temperature"],
            top_p=given["top_p"],
            top_k=given["top_k"],
            seed=secrets.randbits(62) if seed is None else seed,
            min_p=given["min_p"],
            repetition_penalty=given["repetition_penalty"],
            presence_penalty=given["presence_penalty"],
            frequency_penalty=given["frequency_penalty"],
            logit_bias=given["logit_bias"],
        ),
        stop=stop,
        ignore_eos=bool(given.get("ignore_eos")),
        min_tokens=given["min_tokens"],
        logprobs=given["logprobs"],
        speculate=not given["no_speculation"],
        timings=bool(given.get("timings")),
        grace_s=given["grace"],
        audit=given["audit"],
        private=given["private"],
        private_tail=given["private_tail"],
    )
