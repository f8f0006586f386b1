"""The command that talks with a model, line by line: chat."""

from __future__ import annotations

from typing import Any

import click

from diffuse_core.cli.asking_options import SectionedCommand, asking
from diffuse_core.cli.common import common, set_logging
from diffuse_core.cli.private import own_layers


@click.command(cls=SectionedCommand)
@asking
@click.option("--timings", is_flag=True, help="Print timings and the route after each answer.")
@click.option(
    "--no-history",
    is_flag=True,
    help="Keep no file of what is typed. Also: DIFFUSE_NO_HISTORY=1 in the environment.",
)
@common
def chat(**given: Any) -> None:
    """Talk with a model, line by line; also over ssh.

    \b
    diffuse chat                        the only model that can be served
    diffuse chat --model demo --temperature 0.7 --system "Be brief"
    printf 'Hi\\nAnd you?\\n' | diffuse chat      a question a line, no terminal

    Enter sends, Alt+Enter or Ctrl+J begins a new line; what is pasted stays one
    message. Up and Down go through what was typed before, Ctrl+R searches it, Tab
    completes commands. Ctrl+C stops the answer on every host, and a second one does
    not wait for that; at an empty prompt Ctrl+C twice, Ctrl+D or /quit leave.
    /help lists the commands, // begins a question with a /.

    What is typed is kept in chat_history in the state directory, for its owner only.
    Without a terminal the exit code is that of the last question that failed.
    """
    # What the network does is told by answers; log lines would be drawn over what is typed.
    set_logging(given["log_level"], given["log_format"], default="error")
    with own_layers(given) as given["layers"]:
        from diffuse_core.cli.chat.talk import talk

        code = talk(given, chat)
        if code:
            raise SystemExit(code)
