"""How bash, zsh and fish ask for completions, and take what they are told.

Each gives the line up to the cursor in the environment. It is told one thing a line: what a shell
is to complete itself (`file`, `dir`), and what it may put in (`plain`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, cast

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from diffuse_core.cli.service.inner import RUN_FOR_WEEKS

if TYPE_CHECKING:
    import click

LINE = "COMP_LINE"
"""What stands before the cursor, as it was typed (bash and zsh)."""
WORD = "COMP_WORD"
"""What of it the shell takes for the word to be completed; bash begins words after `=` and `:`."""
TOKENS = "COMP_TOKENS"
"""The words before that one, without their quotes, one a line (fish)."""
SERVICES = (("service", "print"), ("service", "install"))
"""Commands that take another one, with its options."""
_END = "\N{REPLACEMENT CHARACTER}"
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
"""What means itself in every shell, also without quotes, which bash puts around files alone."""

# A `~` at the begin of a command is the shell's own affair, and not yet replaced. What is no
# file goes into the line without quotes: half of a name with a line break in it, for one.
_BASH = """\
%(complete_func)s() {
    local kind value program=$1 files=
    [[ $program == '~'/* ]] && program=$HOME/${program:2}
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default; files=1 ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" \
%(complete_var)s=bash_complete "$program" 2>/dev/null)
    if [[ $files && ${#COMPREPLY[@]} -gt 0 ]]; then
        compopt -o filenames
        while IFS= read -r value; do
            [[ ${value#"$2"} == *[\\`\\$]* && ! -e ${value/#'~'/$HOME} ]] || COMPREPLY+=("$value")
        done < <(compgen -f -- "$2")
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a found plain described
    local kind value text program=${(Q)words[1]} line="${(j: :)words[1,CURRENT-1]}"
    program=${program/#\\~\\//$HOME/}
    (( $+commands[$program] )) || [[ -x $program ]] || program=%(prog_name)s
    found=("${(@f)$(env COMP_LINE="$line $QIPREFIX$PREFIX" \
%(complete_var)s=zsh_complete $program 2>/dev/null)}")
    [[ $PREFIX == --*=* ]] && compset -P '*='
    for kind value text in "${found[@]}"; do
        case $kind in
            plain) [[ $text == _ ]] && plain+=("$value") || described+=("$value:$text") ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
_FISH = """\
function %(complete_func)s
    set -l tokens (commandline -opc | string collect)
    set -l word (commandline -ct | string collect)
    set -l option (string match -r -- '^--[^=]+=' $word; or echo)
    for line in (env COMP_TOKENS="$tokens" COMP_WORD="$word" \
%(complete_var)s=fish_complete %(prog_name)s 2>/dev/null)
        set -l told (string split -m 1 , -- $line)
        switch $told[1]
            case dir
                printf '%%s\\n' $option(__fish_complete_directories $told[2])
            case file
                printf '%%s\\n' \
$option(complete -C"'' "(string replace -r -- '^--[^=]+=' '' $word))
            case plain
                printf '%%s\\n' $told[2]
        end
    end
end

complete --command %(prog_name)s --no-files --arguments '(%(complete_func)s)'
"""


def begun(line: str) -> tuple[list[str], str]:
    """The words of a line before the one that it breaks off in, and what there is of that one."""
    *words, last = split_arg_string(line + _END)
    return words, last.removesuffix(_END)


def option_of(word: str) -> str:
    """What stands before the value in `--option=value`, the sign included; else nothing."""
    name, sign, _ = word.partition("=")
    return name + sign if sign and name.startswith("--") else ""


def _valued(command: click.Command) -> set[str]:
    """The options of a command that take the next word."""
    options = (one for one in command.params if one.param_type_name == "option")
    return {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}


class _Completing(ShellComplete):
    """What the three have in common."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one to be completed, without the program, and what there is of it.

        Scripts that another version has printed go on to work.
        """
        if LINE not in os.environ:
            return super().get_completion_args()
        words, word = begun(os.environ[LINE])
        return words[1:], word

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """What may stand there, without what a shell could take for more than a name."""
        found = self._completed(args, incomplete)
        return [one for one in found if one.type != "plain" or _SAFE.fullmatch(one.value)]

    def _completed(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """The command that a service is to run is completed as by itself."""
        if tuple(args[:2]) not in SERVICES:
            return super().get_completions(args, incomplete)
        root = cast("click.Group", self.cli).commands
        service = cast("click.Group", root[args[0]])
        valued = _valued(service.commands[args[1]])
        at = 2
        while at < len(args) and args[at].startswith("-"):
            at += 2 if args[at] in valued else 1
        if at < len(args):
            known = args[at] in RUN_FOR_WEEKS
            return super().get_completions(args[at:], incomplete) if known else []
        found = super().get_completions(args, incomplete)
        # Past the end: what stands there is the value of an option.
        if not found and at == len(args) and not incomplete.startswith("-"):
            found = [
                CompletionItem(name, help=root[name].get_short_help_str())
                for name in RUN_FOR_WEEKS
                if name.startswith(incomplete)
            ]
        return found


class _Bash(_Completing, BashComplete):
    source_template = _BASH

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        whole = incomplete.removeprefix(option_of(incomplete))
        replaced = os.environ.get(WORD, whole)
        before = whole.removesuffix(replaced) if whole.endswith(replaced) else ""
        for item in found:
            item.value = item.value.removeprefix(before)
        return found

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value}"


class _Zsh(_Completing, ZshComplete):
    source_template = _ZSH

    def format_completion(self, item: CompletionItem) -> str:
        told = " ".join((item.help or "_").split())
        # Where there is a help, the first colon is where it begins.
        value = item.value if told == "_" else item.value.replace(":", "\\:")
        return f"{item.type}\n{value}\n{told}"


class _Fish(_Completing, FishComplete):
    source_template = _FISH

    def get_completion_args(self) -> tuple[list[str], str]:
        if TOKENS not in os.environ:
            return super().get_completion_args()
        words = os.environ[TOKENS].splitlines()
        while words and "=" in words[0]:  # Variables that are set for this command alone.
            del words[0]
        return words[1:], begun(os.environ.get(WORD, ""))[1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        for item in found:
            if item.type == "plain":
                item.value = option_of(incomplete) + item.value
        return found

    def format_completion(self, item: CompletionItem) -> str:
        told = " ".join((item.help or "").split())
        return f"{item.type},{item.value}\t{told}" if told else f"{item.type},{item.value}"


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
