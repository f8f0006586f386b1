"""A shell on a terminal of its own, in which keys are typed as a user types them."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 30.0
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
ALL, TELL = "\x18a", "\x18t"
"""Keys: put in all that is offered for the word; tell the line, and begin a new one."""
_BASH = """
PS1='ready> '
bind 'set enable-bracketed-paste off'
eval "$(diffuse completions bash)"
tell() { printf '%s\\0' "$READLINE_LINE" > "$TOLD"; READLINE_LINE=; READLINE_POINT=0; }
bind '"\\C-xa": insert-completions'
bind -x '"\\C-xt": tell'
"""
_ZSH = """
PS1='ready> '
unsetopt ZLE_BRACKETED_PASTE LIST_BEEP
autoload -Uz compinit && compinit -u -D
eval "$(diffuse completions zsh)"
zle -C all complete-word _generic
zstyle ':completion:all:*' completer _all_matches _complete
zstyle ':completion:all:*' insert yes
bindkey '^Xa' all
bindkey '^I' expand-or-complete
tell() { printf '%s\\0' "$BUFFER" > "$TOLD"; BUFFER= }
zle -N tell
bindkey '^Xt' tell
"""
_FISH = """
function fish_prompt; echo 'ready> '; end
function fish_greeting; end
function tell; printf '%s\\0' (commandline) > $TOLD; commandline ''; end
bind \\cxt tell
"""


class Shell:
    """A shell that completes `diffuse`, where the files of a directory are."""

    def __init__(self, name: str, here: Path, *, plugin: Path | None = None) -> None:
        self.name = name
        place = here / f"home-{name}"
        (place / "bin").mkdir(parents=True)
        program = place / "bin" / "diffuse"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m diffuse_core "$@"\n')
        program.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DIFFUSE_", "XDG_"))}
        kept |= {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HOME": str(place),
            "ZDOTDIR": str(place),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
            "TOLD": str(place / "told"),
            "HISTFILE": os.devnull,
        }
        self._environment = kept
        self._drawn = b""
        os.mkfifo(place / "told")
        self._told = os.open(place / "told", os.O_RDWR | os.O_NONBLOCK)
        self._master, self._slave = pty.openpty()
        termios.tcsetwinsize(self._slave, (50, 200))
        self._process = subprocess.Popen(
            self._command(name, place, plugin),
            stdin=self._slave, stdout=self._slave, stderr=self._slave, start_new_session=True,
            env=kept, cwd=here, preexec_fn=_own_terminal,
        )  # fmt: skip
        self._wait(b"ready> ")

    def _command(self, name: str, place: Path, plugin: Path | None) -> list[str]:
        if name == "bash":
            (place / "rc").write_text((f". {plugin}\n" if plugin else "") + _BASH)
            return ["bash", "--noprofile", "--rcfile", str(place / "rc"), "-i"]
        if name == "zsh":
            (place / ".zshrc").write_text(_ZSH)
            return ["zsh", "-d", "-i"]
        config = place / ".config" / "fish"
        (config / "completions").mkdir(parents=True)
        (config / "config.fish").write_text(_FISH)
        made = subprocess.run(
            ["diffuse", "completions", "fish"],
            executable=shutil.which("diffuse", path=self._environment["PATH"]),
            env=self._environment, capture_output=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        (config / "completions" / "diffuse.fish").write_bytes(made.stdout)
        return ["fish", "-i"]

    def line(self, typed: str, key: str = "\t") -> str:
        """The line after it was typed, and a key."""
        os.write(self._master, (typed + key + TELL).encode())
        told = b""
        end = time.monotonic() + PATIENCE_S
        while not told.endswith(b"\0"):
            left = max(0.0, end - time.monotonic())
            ready = select.select([self._told, self._master], [], [], left)[0]
            assert ready, f"no line came, but {self._drawn!r}"
            if self._told in ready:
                told += os.read(self._told, 65_536)
            if self._master in ready:
                self._drawn += os.read(self._master, 65_536)
        return told[:-1].decode()

    @property
    def drawn(self) -> str:
        """All that was drawn until now."""
        return self._drawn.decode("utf-8", "replace")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for handle in (self._master, self._slave, self._told):
            os.close(handle)

    def _wait(self, words: bytes) -> None:
        end = time.monotonic() + PATIENCE_S
        while words not in self._drawn:
            left = max(0.0, end - time.monotonic())
            assert select.select([self._master], [], [], left)[0], f"only {self._drawn!r}"
            self._drawn += os.read(self._master, 65_536)


def _own_terminal() -> None:
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def shell(name: str, here: Path, *, plugin: Path | None = None) -> Iterator[Shell]:
    """A shell with completions, ended in any case."""
    found = Shell(name, here, plugin=plugin)
    try:
        yield found
    finally:
        found.close()
