"""The command line: `diffuse COMMAND`, the same as `diffuse-tui --no-ui COMMAND`."""

from __future__ import annotations

import os
import sys

import click

from diffuse_core import __version__
from diffuse_core.cli.bench import bench
from diffuse_core.cli.chat import chat
from diffuse_core.cli.completions import answer_shell, completions
from diffuse_core.cli.config import config
from diffuse_core.cli.demo import demo
from diffuse_core.cli.doctor import doctor
from diffuse_core.cli.help_topics import help_
from diffuse_core.cli.identity import identity
from diffuse_core.cli.layers import switch_both_ways
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


def _drop_output() -> None:
    """Keep Python from flushing what cannot be written once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str] | None = None) -> int:
    """Run a command; its exit code. Errors meant for people are printed, never a traceback."""
    _open_missing_streams()
    if (answered := answer_shell(cli, os.environ)) is not None:
        return answered
    try:
        given = sys.argv[1:] if arguments is None else arguments
        with cli.make_context("diffuse", list(given)) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except DiffuseError as error:
        click.echo(f"diffuse: {clean(str(error))}", err=True)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone; keep Python from complaining at exit.
        _drop_output()
        return EXIT_PIPE
    except OSError as error:
        click.echo(f"diffuse: cannot write or read what was asked: {error}", err=True)
        _drop_output()
        return EXIT_OUTPUT
    return result if isinstance(result, int) else 0
