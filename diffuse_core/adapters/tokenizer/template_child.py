"""The process in which a chat template runs: this file is its whole program.

A template comes from the network, and Jinja's sandbox keeps it from reaching out but not from
looping or growing for ever; a process can be limited and killed. It reads lines of JSON from its
standard input: first `{"path", "template", "special"}`, then `{"messages", "tools"}` per chat,
each answered by one line: `{"text"}` or `{"problem"}`. It ends with its input.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

RENDER_S = 3.0
MEMORY_BYTES = 512 * 2**20


def main() -> None:
    """Serve one parent until it closes the pipe."""
    lines = iter(sys.stdin.buffer.readline, b"")
    setup = json.loads(next(lines))
    sys.path[:] = setup["path"]
    from diffuse_core.adapters.tokenizer.template_language import compile_template, fill

    compiled: list[Template] = []

    def answer(line: bytes) -> dict[str, str]:
        try:
            if not compiled:
                compiled.append(compile_template(setup["template"]))
            chat = json.loads(line)
            return {"text": fill(compiled[0], chat["messages"], chat["tools"], setup["special"])}
        except Exception as error:  # noqa: BLE001 - whatever a hostile template provokes
            return {"problem": f"{type(error).__name__}: {error}"[:500]}

    _limit_process()
    for line in lines:
        # Ends the process from outside the interpreter, whatever it is busy with, and also when
        # no parent is left to do it.
        faulthandler.dump_traceback_later(RENDER_S, exit=True)
        data = json.dumps(answer(line)).encode() + b"\n"
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _limit_process() -> None:
    try:
        import resource
    except ImportError:  # Windows; the deadline holds there all the same.
        return
    for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_FSIZE, 0)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
