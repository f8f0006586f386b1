"""`diffuse demo`: the whole of Diffuse on one machine, started and stopped by one command."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.ask import print_timings, stream_answer
from diffuse_core.cli.common import common, run_until_done, set_logging

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.cli.demo_network import DemoNetwork


class Stopped(Exception):  # noqa: N818
    """Raised in the download's progress callback to end it."""


@click.command()
@common
@click.option(
    "--hosts",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    help="Host processes, each too small for the whole model.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bf16", "fp32"]),
    default="bf16",
    show_default=True,
    help="Compute contract of the hosts.",
)
@click.option("--ask", metavar="TEXT", help="Ask this, print the answer, stop everything.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 2**20),
    default=256,
    show_default=True,
    help="Most tokens of the answer to --ask.",
)
def demo(**given: Any) -> None:
    """Run a sentinel and three hosts of a small model here, and ask or chat.

    \b
    diffuse-tui demo
    diffuse demo --ask "What is the capital of France?"
    """
    set_logging(given["log_level"], given["log_format"])
    run_until_done(_demo(given))


async def _demo(given: dict[str, Any]) -> None:
    async with demo_network(given["hosts"], given["network"], given["dtype"]) as network:
        if given["ask"]:
            await _ask(network, given)
            return
        click.echo(
            f"the model is servable. Reach it from another terminal:\n"
            f'  diffuse query --bootstrap {network.sentinel} --model demo --prompt "Hello"\n'
            f"  diffuse chat --bootstrap {network.sentinel} --model demo\n"
            f"  diffuse status --bootstrap {network.sentinel}\n"
            f"  diffuse-tui --bootstrap {network.sentinel}\n"
            "Ctrl+C stops everything."
        )
        await network.watch()


@contextlib.asynccontextmanager
async def demo_network(hosts: int, network: str, dtype: str) -> AsyncIterator[DemoNetwork]:
    """A demo network that is servable; stopped in any case at the end.

    Raises:
        DiffuseError: the model could not be had, or a process failed.
    """
    from diffuse_core.cli.demo_network import DemoNetwork, demo_shape

    stopped = threading.Event()
    with _bar("getting the demo model") as bar:

        def progress(fraction: float) -> None:
            if stopped.is_set():
                raise Stopped
            bar.update(max(0, int(fraction * 1000) - bar.pos))

        try:
            shape = await asyncio.to_thread(demo_shape, progress, dtype)
        finally:
            stopped.set()
    running = DemoNetwork(hosts, network, _say)
    try:
        await running.start(shape, dtype)
        yield running
    finally:
        await running.stop()


def _bar(label: str) -> Any:
    return click.progressbar(length=1000, label=label, file=sys.stderr, show_percent=True)


def _say(text: str) -> None:
    click.echo(f"demo: {text}", err=True)


async def _ask(network: DemoNetwork, given: dict[str, Any]) -> None:
    from diffuse_core.domain.view import ChatMessage, GenerateRequest
    from diffuse_core.wiring import observe

    request = GenerateRequest(
        model="demo",
        messages=(ChatMessage("user", given["ask"]),),
        max_tokens=given["max_tokens"],
    )
    async with observe((network.sentinel,), given["network"]) as (_, client):
        finished, _ = await stream_answer(client, request)
    click.echo()
    print_timings(finished)
