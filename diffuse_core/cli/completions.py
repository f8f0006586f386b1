"""`diffuse completions`: what a shell needs to complete commands, options and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    It counts from the next shell on. Bash needs version 4.4 or later. Names of models on the
    network are not completed.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    if found is None:  # Only of a click that has lost one of its three.
        raise click.UsageError(f"there are no completions for {shell}")
    click.echo(found(root, {}, PROGRAM, VARIABLE).source(), nl=False)


def answer_shell(root: click.Command, environ: Mapping[str, str]) -> int | None:
    """Answer a shell that asks for completions; the exit code, or None when none does."""
    asked = environ.get(VARIABLE)
    if not asked:
        return None
    from click.shell_completion import shell_complete

    return shell_complete(root, {}, PROGRAM, VARIABLE, asked)
