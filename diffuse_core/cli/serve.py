"""The command that serves the OpenAI API to other programs."""

from __future__ import annotations

import logging
import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diffuse_core.cli.common import (
    a_path,
    common,
    find_bootstrap,
    not_empty,
    run_service,
    set_logging,
)
from diffuse_core.cli.hints import command_of_key
from diffuse_core.cli.log_lines import errors_logged, tell
from diffuse_core.cli.operated import operated, operations
from diffuse_core.errors import UsageError
from diffuse_core.settings import state_dir

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from diffuse_core.serving import ServeOptions

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
KEY_VARIABLE = "DIFFUSE_API_KEY"


@click.command()
@click.option(
    "--host",
    default=DEFAULT_HOST,
    show_default=True,
    help="Address to listen on. On another than loopback everything, the key too, goes over the "
    "network in clear: put something that speaks TLS in front.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 takes any that is free.",
)
@click.option(
    "--no-auth",
    is_flag=True,
    help="Answer everybody on this machine, without a key. On loopback only.",
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    callback=a_path,
    metavar="FILE",
    help=f"Take the key from FILE. Else {KEY_VARIABLE} in the environment is the key, else that "
    "in api.key in the state directory, where one is made the first time.",
)
@click.option(
    "--print-key",
    is_flag=True,
    help="Print the key that programs have to show, and end.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name that programs may reach this server by, beside its address and localhost: that "
    "of a proxy in front of it, or of this machine. May be repeated.",
)
@click.option(
    "--allow-origin",
    multiple=True,
    metavar="URL",
    help="Let web pages of this origin use the server, as http://localhost:3000. By default no "
    "page in a browser may. May be repeated.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="M",
    callback=not_empty,
    help="Serve this model of the network only. May be repeated. Default: all of them.",
)
@click.option(
    "--max-concurrent",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="Answers that are given at a time. A few more requests wait, the rest get status 429.",
)
@click.option("--json", "as_json", is_flag=True, help="Tell as one line of JSON that it serves.")
@operated
@common
def serve(**given: Any) -> int | None:
    """Serve the models of the network to other programs, over HTTP as OpenAI's API.

    What works with OpenAI's API works with this one, given its address and key: chat and text
    completions, streamed or whole, tools, log probabilities. /healthz tells without a key
    whether the network can be reached; while it cannot, the server goes on looking for it.
    `diffuse help api` tells which fields are known, and what each status means.

    \b
    diffuse serve
    diffuse serve --port 9000 --no-auth
    diffuse serve --model demo --max-concurrent 4
    diffuse serve --host 0.0.0.0 --allow-host gpu1.example.org

    \b
    In another shell, with curl or any program that has these variables:
      export OPENAI_BASE_URL=http://127.0.0.1:8080/v1
      export OPENAI_API_KEY=$(diffuse serve --print-key)
      curl $OPENAI_BASE_URL/chat/completions \\
        -H "Authorization: Bearer $OPENAI_API_KEY" \\
        -H "Content-Type: application/json" \\
        -d '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'

    SIGTERM ends it with 0 after up to 5 seconds for answers that are being given, Ctrl+C with
    130; a second signal at once. Its log has a line for each request, never what was asked.
    """
    if given["print_key"]:
        click.echo(_key(given)[0]())
        return None
    form, file = given["log_format"], given["log_file"]
    set_logging(given["log_level"], form, "info", file, no_data=not given["as_json"])
    with errors_logged(file):
        return _serve(given)


def _serve(given: dict[str, Any]) -> int:
    options, place = _options(given)
    from diffuse_core.operating import is_loopback
    from diffuse_core.serving import serve_api

    if not is_loopback(options.host):
        tell(
            f"HTTP on {options.host} goes over the network in clear, prompts, answers and the key "
            "alike; put something that speaks TLS in front",
            err=True,
            level=logging.WARNING,
        )

    async def work(stop: asyncio.Event) -> None:
        await serve_api(options, stop, lambda address: _tell(given, address, place))

    return run_service(work)


def _options(given: dict[str, Any]) -> tuple[ServeOptions, str | None]:
    """How to serve, and where the key is.

    Raises:
        UsageError: the options contradict each other, or a key cannot be used.
    """
    from diffuse_core.adapters.http_server import parse_name, parse_origin
    from diffuse_core.cli.model_choice import name_on_network
    from diffuse_core.operating import is_loopback
    from diffuse_core.serving import ServeOptions

    host = given["host"].removeprefix("[").removesuffix("]")
    if given["no_auth"] and not is_loopback(host):
        raise UsageError(
            f"--no-auth lets everybody in who reaches {host!r}; it is for loopback only: leave it "
            "out, or give --host 127.0.0.1"
        )
    names = tuple(map(parse_name, given["allow_host"]))
    origins = tuple(map(parse_origin, given["allow_origin"]))
    key, place = (None, None) if given["no_auth"] else _key(given)
    options = ServeOptions(
        host=host,
        port=given["port"],
        key=key,
        names=names,
        origins=origins,
        models=tuple(map(name_on_network, given["models"])),
        at_once=given["max_concurrent"],
        places=find_bootstrap(given["bootstrap"], given["state_dir"]),
        network=given["network"],
        operations=operations(given),
    )
    return options, place


def _key(given: dict[str, Any]) -> tuple[Callable[[], str], str]:
    """What gives the key, and where it is: a file, or the environment.

    Raises:
        UsageError: the key that was given cannot be used.
    """
    from diffuse_core.adapters.file_storage.api_key import (
        API_KEY,
        check_api_key,
        load_api_key,
        read_api_key,
    )

    file: Path | None = given["api_key_file"]
    source = click.get_current_context().get_parameter_source("api_key_file")
    in_environment = os.environ.get(KEY_VARIABLE)
    if file is not None and (source == ParameterSource.COMMANDLINE or not in_environment):
        own = read_api_key(file)
        return lambda: own, str(file)
    if in_environment:
        key = check_api_key(in_environment.strip(), KEY_VARIABLE)
        return lambda: key, KEY_VARIABLE
    directory = state_dir(given["state_dir"])
    return partial(load_api_key, directory), str(directory / API_KEY)


def _tell(given: dict[str, Any], address: str, place: str | None) -> None:
    """Say where it serves, and how to ask there."""
    url = f"http://{_reachable(address)}/v1"
    if given["as_json"]:
        import msgspec

        told = {"url": url, "address": address, "key": place}
        click.echo(msgspec.json.encode(told))
        return
    lines = [f"serving OpenAI's API at {url}", f"  export OPENAI_BASE_URL={url}"]
    lines += _how_to_ask(given, url, place)
    if given["log_format"] == "json":
        tell(lines[0], url=url, address=address, key=place)
    else:
        click.echo("\n".join(lines))


def _how_to_ask(given: dict[str, Any], url: str, place: str | None) -> list[str]:
    """What to type in another shell."""
    if place is None:
        return ["  export OPENAI_API_KEY=none", f"  curl {url}/models"]
    if place == KEY_VARIABLE:
        shown = f'"${KEY_VARIABLE}"'
    else:
        file = given["api_key_file"]
        named = f" --api-key-file {shlex.quote(str(file))}" if file is not None else ""
        command = command_of_key(f"serve --print-key{named}", given["state_dir"], os.environ)
        shown = f"$({command})"
    return [
        f"  export OPENAI_API_KEY={shown}",
        f'  curl {url}/models -H "Authorization: Bearer $OPENAI_API_KEY"',
        f"the key is in {place}",
    ]


def _reachable(address: str) -> str:
    """An address to ask at: one that listens everywhere is met on loopback too."""
    host, _, port = address.rpartition(":")
    local = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  (compared with)
    return f"{local.get(host, host)}:{port}"
