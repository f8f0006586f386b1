"""The `diffuse-tui` command: the app, or with `--no-ui` any `diffuse` command."""

from __future__ import annotations

import gc
import signal
import sys

NO_UI = "--no-ui"
APP_COMMANDS = ("demo", "attach", "chat")
HELP = """\
Usage: diffuse-tui [demo|attach|chat|web] [OPTIONS]
       diffuse-tui --no-ui COMMAND ...        the same as: diffuse COMMAND ...

The terminal app of Diffuse: live coverage, replica health, this machine, and
chat.

  (no command)   attach to the node that runs here, or start one that ends with
                 the app
  attach         attach only; never start a node
  chat           as without a command, with the chat open first
  demo           start a sentinel and three small hosts here, then the app;
                 quitting stops all
  web            the app in a browser on this machine (needs the extra
                 diffuse-tui[web])

Options:
  --bootstrap A,B     HOST:PORT of known nodes
  --model M           the model to show first
  --theme NAME        dark, light, contrast or ansi (or DIFFUSE_THEME); the last
                      one is remembered
  --state-dir DIR     where this machine's node keeps its identity
  --no-history        keep no conversation on the disk (or
                      DIFFUSE_NO_HISTORY=1)
  --network NAME      nodes of another network name are not talked to
  --network-key-file F
                      the shared secret of a private network (or
                      DIFFUSE_NETWORK_KEY)
  --allow ID|FILE     talk to these nodes only
  --no-mdns           do not look for nodes on the LAN
  --hosts N           demo: host processes (default 3)
  --dtype D           demo: auto, fp32, bf16, int8 or int4
  --port N            web: the port on 127.0.0.1 (default 8000); other options
                      go to the app
  --version, --help

What is not given comes from DIFFUSE_* in the environment, else from the table
[app] of config.toml (diffuse config show app). `diffuse help app` tells more.

Examples:
  diffuse-tui demo
  diffuse-tui --bootstrap 192.168.1.20:9440 --model demo

Inside, F1 lists the keys (`?` too, outside the prompt). Other commands:
diffuse --help.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the app or a command, and exit with its status."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        code = 130
    # All is done: Ctrl+C from here on ends the process, with no word of Python's about it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if NO_UI in arguments:
        arguments.remove(NO_UI)
        return _core(arguments)
    if "--help" in arguments or "-h" in arguments:
        # Options before it are the app's, and so is their help.
        if arguments[0].startswith("-") or arguments[0] in (*APP_COMMANDS, "web"):
            sys.stdout.write(HELP)
            return 0
        return _core(arguments)
    if "--version" in arguments:
        return _core(["--version"])
    if arguments[:1] == ["web"]:
        from diffuse_tui.web import serve

        return serve(arguments[1:])
    if _is_core_command(arguments):
        return _core(arguments)
    # What the start makes stays. The collector would go through all of it again and again, for an
    # eighth of the time until the first picture; `launch` lets it work again after that.
    gc.disable()
    from diffuse_tui.launch import launch

    return launch(arguments)


def _is_core_command(arguments: list[str]) -> bool:
    """Commands without a screen of their own, `demo` without a terminal, `demo --ask`."""
    first = arguments[0] if arguments else ""
    if not first or first.startswith("-"):
        return False
    if first == "demo":
        return not sys.stdout.isatty() or not sys.stdin.isatty() or "--ask" in arguments
    return first not in APP_COMMANDS


def _core(arguments: list[str]) -> int:
    from diffuse_core.cli import run

    return run(arguments)


if __name__ == "__main__":
    main()
