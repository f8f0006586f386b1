"""`diffuse completions`: what a shell needs to complete commands, options and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import ShellComplete

PROGRAM = "diffuse"
VARIABLE = "_DIFFUSE_COMPLETE"
"""In it the shell asks us for completions, instead of running a command."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completions(shell: str) -> None:
    """Print what lets a shell complete `diffuse`: commands, options, choices and paths.

    \b
    bash: add to ~/.bashrc
      eval "$(diffuse completions bash)"
    zsh: add to ~/.zshrc, below compinit
      eval "$(diffuse completions zsh)"
    fish:
      diffuse completions fish > ~/.config/fish/completions/diffuse.fish

    It counts from the next shell on. Bash needs version 4.4 or later. Of models those are
    completed that are on this machine: files, directories, `demo`, and what came from the hub.
    """
    root = click.get_current_context().find_root().command
    click.echo(_asking(root, shell).source(), nl=False)


def _asking(root: click.Command, shell: str) -> ShellComplete:
    from diffuse_core.cli.shell_scripts import SHELLS

    return SHELLS[shell](root, {}, PROGRAM, VARIABLE)


def answer_shell(root: click.Command, environ: Mapping[str, str]) -> int | None:
    """Answer a shell that asks for completions; the exit code, or None when none does."""
    asked = environ.get(VARIABLE)
    if not asked:
        return None
    from diffuse_core.cli.shell_scripts import SHELLS

    shell, _, wanted = asked.partition("_")
    if shell not in SHELLS or wanted not in ("complete", "source"):
        return 1
    asking = _asking(root, shell)
    click.echo(asking.complete() if wanted == "complete" else asking.source())
    return 0
