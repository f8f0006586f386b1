"""The command line: `diffuse COMMAND`, the same as `diffuse-tui --no-ui COMMAND`."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, TextIO

import click

from diffuse_core import __version__
from diffuse_core.cli.bench import bench
from diffuse_core.cli.chat import chat
from diffuse_core.cli.completions import answer_shell, completions
from diffuse_core.cli.config import config
from diffuse_core.cli.demo import demo
from diffuse_core.cli.doctor import doctor
from diffuse_core.cli.early_log import wants_json
from diffuse_core.cli.help_topics import help_
from diffuse_core.cli.identity import identity
from diffuse_core.cli.layers import switch_both_ways
from diffuse_core.cli.log_lines import set_logging, tell_error
from diffuse_core.cli.look import models, status
from diffuse_core.cli.nodes import host, node, sentinel
from diffuse_core.cli.plan import plan
from diffuse_core.cli.quarantine import quarantine
from diffuse_core.cli.query import query
from diffuse_core.cli.root import RootGroup, complete_paths, name_numbers
from diffuse_core.cli.serve import serve
from diffuse_core.cli.service import service
from diffuse_core.cli.stop import drain, stop
from diffuse_core.cli.verify import verify
from diffuse_core.domain.plain_text import clean
from diffuse_core.errors import EXIT_INTERRUPTED, DiffuseError

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_PIPE = 141
EXIT_OUTPUT = 74
"""What sysexits.h calls EX_IOERR."""

EPILOG = """\b
Exit codes:
    0  good                               6  refused or busy
    2  usage                              7  stages lost
    3  model unknown, unusable or         8  doctor found a problem
       different in slices               74  output failed
    4  model incomplete                 130  interrupted (Ctrl+C)
    5  no node reachable                141  the reader of a pipe went away
                                      128+n  ended by signal n

Errors go to stderr, data to stdout. Options come from flags, else DIFFUSE_* in the environment,
else a file (`diffuse config`). Guides: `diffuse help`.
"""


@click.group(
    cls=RootGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="diffuse")
def cli() -> None:
    """Run a language model that no single machine can hold, on many ordinary ones.

    \b
    Try it:   diffuse demo --ask "What is the capital of France?"
    By hand:  diffuse host --model demo                  # in one terminal
              diffuse query --prompt "Hello"             # in another
    Machines: diffuse sentinel                           # on one, A
              diffuse host --model demo --bootstrap A:9440 --memory 300MiB
    The app:  diffuse-tui
    """


COMMANDS = (
    sentinel,
    host,
    node,
    models,
    status,
    plan,
    doctor,
    bench,
    query,
    chat,
    serve,
    demo,
    verify,
    stop,
    drain,
    service,
    identity,
    quarantine,
    config,
    completions,
    help_,
)
for _command in COMMANDS:
    cli.add_command(_command)
switch_both_ways(cli)
complete_paths(cli)
name_numbers(cli)


def _open_missing_streams() -> None:
    """Stand-ins for streams that whoever started us closed (`<&-`, `>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _keep_others_out() -> None:
    """Whatever umask we were given: what we make is for nobody in the world to write.

    Private files are so anyway, but not the directories above them, as `~/.local/state`.
    """
    os.umask(os.umask(0o077) | stat.S_IWOTH)


def _output_failed(error: OSError) -> int:
    """Say so where that helps anybody; the exit code."""
    gone = isinstance(error, BrokenPipeError)  # Whoever read our output.
    if not gone:
        reason = (error.strerror or str(error)).lower()
        where = "" if error.filename is None else f": {error.filename}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        mend = "; make room, or write elsewhere" if full else ""
        _tell(f"cannot write or read what was asked: {reason}{where}{mend}", EXIT_OUTPUT)
    _drop(sys.stdout)
    return EXIT_PIPE if gone else EXIT_OUTPUT


def _tell(message: str, exit_code: int, show: Callable[[], None] | None = None) -> None:
    """Say what ended a command, in the form that log lines have; `show` says it to people."""
    if tell_error(message, exit_code):
        return
    try:
        if show is None:
            click.echo(f"diffuse: {clean(message)}", err=True)
        else:
            show()
    except OSError:  # Nobody can be told; the exit code tells it.
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Keep Python from flushing what cannot be written once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(arguments: list[str] | None = None) -> int:
    """Run a command; its exit code. Errors meant for people are printed, never a traceback."""
    _open_missing_streams()
    _keep_others_out()
    if (answered := answer_shell(cli, os.environ)) is not None:
        return answered
    given = sys.argv[1:] if arguments is None else arguments
    if wants_json(cli, given, os.environ):
        set_logging(None, "json")
    try:
        with cli.make_context("diffuse", list(given)) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        _tell(error.format_message(), error.exit_code, error.show)
        return error.exit_code
    except DiffuseError as error:
        _tell(str(error), error.exit_code)
        return error.exit_code
    except OSError as error:
        return _output_failed(error)
    return result if isinstance(result, int) else 0
