"""Commands that generate: query, and chat line by line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.answer import Collected, print_losses, print_timings, stream_answer
from diffuse_core.cli.common import (
    adding,
    common,
    find_bootstrap,
    finite,
    print_json,
    run_until_done,
    set_logging,
)
from diffuse_core.cli.terminal import quiet_keys
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError, ModelUnknown, UsageError

if TYPE_CHECKING:
    from diffuse_core.domain.view import ChatMessage, Finished, GenerateRequest

MAX_PROMPT_CHARS = 1_000_000
CHAT_HELP = "Ask away. /reset forgets the chat, /quit leaves, Ctrl+C stops an answer."


decoding = adding(
    click.option("--model", required=True, metavar="M", help="A model on the network."),
    click.option("--system", metavar="TEXT", help="System prompt."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1, 2**20),
        default=512,
        show_default=True,
        help="Most tokens to generate.",
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(0, 100),
        callback=finite,
        default=0.0,
        show_default=True,
        help="0 is greedy.",
    ),
    click.option(
        "--top-p",
        type=click.FloatRange(0, 1, min_open=True),
        callback=finite,
        default=1.0,
        show_default=True,
        help="Keep the likeliest tokens of this total.",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(0, 2**24),
        default=0,
        show_default=True,
        help="Keep so many likeliest tokens; 0 keeps all.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Makes sampling repeat."),
)
"""Options of how to generate."""


@click.command()
@decoding
@click.option("--prompt", metavar="TEXT", help="The question; without it stdin is read.")
@click.option("--raw", is_flag=True, help="Send the prompt without the chat template.")
@click.option("--stop", multiple=True, metavar="S", help="End the answer before this text.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end-of-turn token.")
@click.option("--timings", is_flag=True, help="Print timings and the route to stderr.")
@click.option("--json", "as_json", is_flag=True, help="Everything at the end, for scripts.")
@common
def query(**given: Any) -> None:
    """Ask a model of the network one question.

    \b
    diffuse query --model demo --prompt "What is the capital of France?"
    git diff | diffuse query --model demo --system "Summarize this change"
    """
    set_logging(given["log_level"], given["log_format"])
    request = _request(given, _messages(given, _prompt(given)))
    if given["as_json"]:
        _print_collected(given, request)
        return
    finished, _ = run_until_done(_stream(given, request))
    click.echo()
    tell = print_timings if given["timings"] else print_losses
    tell(finished)


def _print_collected(given: dict[str, Any], request: GenerateRequest) -> None:
    """Print the answer as JSON: also what there is of one that broke off."""
    answer = Collected()
    try:
        run_until_done(_collect(given, request, answer))
    except DiffuseError as error:
        if answer.begun:
            print_json(answer.told(error))
        raise
    print_json(answer.told())


def _prompt(given: dict[str, Any]) -> str:
    text = given["prompt"]
    if text is None:
        if sys.stdin.isatty():
            raise UsageError("give --prompt TEXT, or pipe the question into stdin")
        text = sys.stdin.read(MAX_PROMPT_CHARS + 1)
    if len(text) > MAX_PROMPT_CHARS:
        raise UsageError(f"the prompt is longer than {MAX_PROMPT_CHARS} characters; shorten it")
    if not text.strip():
        raise UsageError("the prompt is empty; give --prompt TEXT, or pipe it into stdin")
    return str(text)


def _messages(given: dict[str, Any], text: str) -> tuple[ChatMessage, ...]:
    from diffuse_core.domain.view import ChatMessage

    system = given["system"]
    lead = (ChatMessage("system", system),) if system else ()
    return (*lead, ChatMessage("user", text))


def _request(given: dict[str, Any], messages: tuple[ChatMessage, ...]) -> GenerateRequest:
    import secrets

    from diffuse_core.domain.decoding import SamplingParams
    from diffuse_core.domain.view import GenerateRequest

    raw = bool(given.get("raw"))
    if raw and given["system"]:
        raise UsageError("--raw sends the prompt as it is; leave out --system")
    seed = given["seed"]
    return GenerateRequest(
        model=_name_on_network(given["model"]),
        messages=() if raw else messages,
        raw=messages[-1].content if raw else None,
        max_tokens=given["max_tokens"],
        sampling=SamplingParams(
            temperature=given["temperature"],
            top_p=given["top_p"],
            top_k=given["top_k"],
            seed=secrets.randbits(62) if seed is None else seed,
        ),
        stop=tuple(given.get("stop") or ()),
        ignore_eos=bool(given.get("ignore_eos")),
    )


def _name_on_network(model: str) -> str:
    """A path stands for the name that its hosts advertise."""
    if not Path(model).exists():
        return model
    from diffuse_core.wiring import model_store

    try:
        return model_store().open(model, lambda _fraction: None).id
    except ModelUnknown:
        return model


async def _collect(given: dict[str, Any], request: GenerateRequest, answer: Collected) -> None:
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"]) as (_, client):
        await answer.take(client, request)


async def _stream(given: dict[str, Any], request: GenerateRequest) -> tuple[Finished, str]:
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"]) as (_, client):
        return await stream_answer(client, request)


@click.command()
@decoding
@common
def chat(**given: Any) -> None:
    """Talk with a model, line by line. Ctrl+C stops the answer, /quit or Ctrl+D leaves."""
    set_logging(given["log_level"], given["log_format"])
    from diffuse_core.domain.view import ChatMessage

    system = given["system"]
    lead = (ChatMessage("system", system),) if system else ()
    turns: tuple[ChatMessage, ...] = lead
    click.echo(CHAT_HELP, err=True)
    while (line := _line()) is not None:
        if line in ("/quit", "/exit"):
            return
        if line == "/reset":
            turns = lead
        elif line.startswith("/"):
            click.echo(CHAT_HELP, err=True)
        if not line or line.startswith("/"):
            continue
        asked = (*turns, ChatMessage("user", line))
        answer = _turn(given, _request(given, asked))
        if answer is not None:
            turns = (*asked, ChatMessage("assistant", answer))


def _line() -> str | None:
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives input() history and editing)
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo(err=True)
        return None


def _turn(given: dict[str, Any], request: GenerateRequest) -> str | None:
    try:
        with quiet_keys():
            finished, answer = run_until_done(_stream(given, request))
    except DiffuseError as error:
        click.echo(f"diffuse: {clean(str(error))}", err=True)
        return None
    except SystemExit:
        click.echo("\n(stopped)", err=True)
        return None
    click.echo()
    print_losses(finished)
    return answer
