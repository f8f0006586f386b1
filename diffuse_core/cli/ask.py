"""Commands that generate: query, and chat line by line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.alternatives import alternatives, take_all
from diffuse_core.cli.answer import end_line, show_text
from diffuse_core.cli.aside import print_audits, print_logprobs, print_losses, print_timings
from diffuse_core.cli.asking_options import SectionedCommand, asked, asking
from diffuse_core.cli.common import common, find_bootstrap, print_json, run_until_done, set_logging
from diffuse_core.cli.private import own_layers
from diffuse_core.cli.terminal import quiet_keys
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import DiffuseError, ModelUnknown, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.cli.answer import Answer
    from diffuse_core.domain.view import ChatMessage

MAX_PROMPT_CHARS = 1_000_000
STOP_HELP = "End the answer before this text. May be repeated."
CHAT_HELP = "Ask away. /reset forgets the chat, /quit leaves, Ctrl+C stops an answer."


@click.command(cls=SectionedCommand)
@asking
@click.option("--prompt", metavar="TEXT", help="The question; without it stdin is read.")
@click.option("--raw", is_flag=True, help="Send the prompt without the chat template.")
@click.option("--stop", multiple=True, metavar="S", help=STOP_HELP)
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
    answers = _answers(given, _messages(given, _prompt(given)))
    with own_layers(given) as given["layers"]:
        if given["as_json"]:
            _print_json(given, answers)
        else:
            _print_text(given, answers)


def _print_json(given: dict[str, Any], answers: list[Answer]) -> None:
    """Print answers as one object: the first, and all of them as its choices if there are more.

    Also what there is of those that broke off, or were cancelled by a signal.
    """
    signal: SystemExit | None = None
    try:
        run_until_done(_take(given, answers))
    except SystemExit as ended:
        signal = ended
    if signal is not None or any(answer.begun for answer in answers):
        told = answers[0].told()
        if len(answers) > 1:
            choices = [{"index": at, **answer.told()} for at, answer in enumerate(answers)]
            told = {**told, "choices": choices}
        print_json(told)
    if signal is not None:
        raise signal
    _raise_first(answers)


def _print_text(given: dict[str, Any], answers: list[Answer]) -> None:
    """Print the first answer as it comes, then the others, with what is to be told beside."""
    several = len(answers) > 1
    if several and given["temperature"] == 0:
        click.echo("(at --temperature 0 all answers are the same)", err=True)
    for at, answer in enumerate(answers):
        if several:
            click.echo(f"--- {at + 1} of {len(answers)}, seed {answer.request.sampling.seed} ---")
        if at == 0:
            _stream_first(given, answers)
        else:
            show_text(answer.text)
            _end(given, answer)
        print_audits(answer)
        print_logprobs(answer)
        if several and answer.error is not None:
            click.echo(f"({at + 1} broke off: {clean(str(answer.error))})", err=True)
    _raise_first(answers)


def _stream_first(given: dict[str, Any], answers: list[Answer]) -> None:
    """Print the first answer as it comes; what is to be told of it as soon as it is complete."""
    first = answers[0]
    try:
        run_until_done(_take(given, answers, show_text, lambda: _end(given, first)))
    except SystemExit:
        if first.finished is None:
            end_line(first)
        else:
            print_audits(first)
        raise
    if first.finished is None:
        _end(given, first)


def _end(given: dict[str, Any], answer: Answer) -> None:
    """End the answer's line, and tell its timings or losses."""
    end_line(answer)
    (print_timings if given.get("timings") else print_losses)(answer)


def _raise_first(answers: list[Answer]) -> None:
    for answer in answers:
        if answer.error is not None:
            raise answer.error


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


def _answers(given: dict[str, Any], messages: tuple[ChatMessage, ...]) -> list[Answer]:
    """Answers to be taken, as the options ask for them."""
    request = asked(given, _name_on_network(given["model"]), messages)
    return alternatives(request, given["count"])


def _name_on_network(model: str) -> str:
    """A path stands for the name that its hosts advertise."""
    if not Path(model).exists():
        return model
    from diffuse_core.wiring import model_store

    try:
        return model_store().open(model, lambda _fraction: None).id
    except ModelUnknown:
        return model


async def _take(
    given: dict[str, Any],
    answers: list[Answer],
    show: Callable[[str], None] | None = None,
    complete: Callable[[], None] | None = None,
) -> None:
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"], given["layers"]) as (_, client):
        await take_all(client, answers, show, complete)


@click.command(cls=SectionedCommand)
@asking
@common
def chat(**given: Any) -> None:
    """Talk with a model, line by line. Ctrl+C stops the answer, /quit or Ctrl+D leaves."""
    set_logging(given["log_level"], given["log_format"])
    with own_layers(given) as given["layers"]:
        _talk(given)


def _talk(given: dict[str, Any]) -> None:
    """One turn after the other."""
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
        question = (*turns, ChatMessage("user", line))
        answers = _answers(given, question)
        if _turn(given, answers):
            turns = (*question, ChatMessage("assistant", answers[0].text))


def _line() -> str | None:
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives input() history and editing)
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo(err=True)
        return None


def _turn(given: dict[str, Any], answers: list[Answer]) -> bool:
    """Print the answers to a line of the chat, which goes on with the first; whether that came."""
    try:
        with quiet_keys():
            _print_text(given, answers)
    except DiffuseError as error:
        click.echo(f"diffuse: {clean(str(error))}", err=True)
    except SystemExit:
        click.echo("(stopped)", err=True)
    return answers[0].finished is not None
