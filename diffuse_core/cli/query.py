"""The command that asks one question: query."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.alternatives import alternatives
from diffuse_core.cli.asking_options import SectionedCommand, asked, asking
from diffuse_core.cli.common import common, find_bootstrap, print_json, run_until_done, set_logging
from diffuse_core.cli.private import own_layers
from diffuse_core.cli.showing import Showing, raise_first
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from diffuse_core.cli.answer import Answer, Source
    from diffuse_core.domain.view import ChatMessage

MAX_PROMPT_CHARS = 1_000_000
STDIN = "-"


@click.command(cls=SectionedCommand)
@asking
@click.option(
    "--prompt",
    metavar="TEXT",
    help="The question; without it, or with -, stdin is read.",
)
@click.option(
    "--stdin",
    "with_stdin",
    is_flag=True,
    help="With --prompt: send what is piped into stdin along, below the question. It is not "
    "read unasked, so that a query in a loop does not eat the list that the loop reads.",
)
@click.option("--raw", is_flag=True, help="Send the prompt without the chat template.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end-of-turn token.")
@click.option("--timings", is_flag=True, help="Print timings and the route to stderr.")
@click.option("--json", "as_json", is_flag=True, help="Everything at the end, for scripts.")
@common
def query(**given: Any) -> None:
    """Ask a model of the network one question.

    \b
    diffuse query --prompt "What is the capital of France?"
    git diff | diffuse query --model demo --system "Summarize this change"
    cat notes.txt | diffuse query --stdin --prompt "What is left to do?"
    diffuse query --prompt "A name for a cat" --temperature 1 --n 3
    diffuse query --prompt "Hello" --json | jq .usage

    The answer goes to stdout as it comes, all else to stderr. Ctrl+C ends it on every host.
    """
    set_logging(given["log_level"], given["log_format"])
    text = _prompt(given)
    with own_layers(given) as given["layers"]:
        answers = _answers(given, _messages(given, text))
        if given["as_json"]:
            _print_json(given, answers)
        else:
            run_until_done(_ask(given, answers, Showing(answers, timings=given["timings"]).run))
            raise_first(answers)


def _print_json(given: dict[str, Any], answers: list[Answer]) -> None:
    """Print answers as one object: the first, and all of them as its choices if there are more.

    Also what there is of those that broke off, or were cancelled by a signal.
    """
    from diffuse_core.cli.alternatives import take_all

    signal: SystemExit | None = None
    try:
        run_until_done(_ask(given, answers, lambda client: take_all(client, answers, None)))
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
    raise_first(answers)


async def _ask(
    given: dict[str, Any], answers: list[Answer], run: Callable[[Source], Awaitable[None]]
) -> None:
    """Run what takes the answers, with a client of the network; the model is chosen there."""
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    async with observe(bootstrap, given["network"], given["layers"]) as (observer, client):
        if given["model"] is None:
            from diffuse_core.cli.model_choice import only_model

            name = only_model(observer.view())
            for answer in answers:
                answer.ask(name)
        await run(client)


def _answers(given: dict[str, Any], messages: tuple[ChatMessage, ...]) -> list[Answer]:
    """Source to be taken, as the options ask for them."""
    model = given["model"]
    if model is not None:
        from diffuse_core.cli.model_choice import name_on_network

        model = name_on_network(model)
    return alternatives(asked(given, model or "", messages), given["count"])


def _messages(given: dict[str, Any], text: str) -> tuple[ChatMessage, ...]:
    from diffuse_core.domain.view import ChatMessage

    system = given["system"]
    lead = (ChatMessage("system", system),) if system else ()
    return (*lead, ChatMessage("user", text))


def _prompt(given: dict[str, Any]) -> str:
    """The question, from where the options say."""
    text, along = given["prompt"], given["with_stdin"]
    if text in (None, STDIN):
        if text is None and sys.stdin.isatty():
            raise UsageError("give --prompt TEXT, or pipe the question into stdin")
        text = _read_stdin()
    elif along:
        text = f"{text}\n\n{_read_stdin()}"
    elif sys.stderr.isatty() and _piped_something():
        click.echo("(stdin is not read with --prompt; --stdin sends it along)", err=True)
    if len(text) > MAX_PROMPT_CHARS:
        raise UsageError(f"the prompt is longer than {MAX_PROMPT_CHARS} characters; shorten it")
    if not text.strip():
        raise UsageError("the prompt is empty; give --prompt TEXT, or pipe it into stdin")
    return str(text)


def _read_stdin() -> str:
    try:
        return sys.stdin.read(MAX_PROMPT_CHARS + 1)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is no text in {error.encoding}; convert it, e.g. with iconv"
        ) from error


def _piped_something() -> bool:
    """Whether there is something in a pipe at stdin; it is not waited for."""
    try:
        number = sys.stdin.fileno()
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return False
        return _waiting(number) > 0
    except (OSError, ValueError):
        return False


def _waiting(number: int) -> int:
    """Bytes in a pipe."""
    try:
        from array import array
        from fcntl import ioctl
        from termios import FIONREAD
    except ImportError:  # Windows
        return 0
    count = array("i", [0])
    ioctl(number, FIONREAD, count)
    return count[0]
