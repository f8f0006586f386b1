"""`diffuse demo`: the whole of Diffuse on one machine, started and stopped by one command."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.answer import stream_answer
from diffuse_core.cli.aside import print_timings
from diffuse_core.cli.common import chosen_contract, common, dtyped, run_until_done, set_logging
from diffuse_core.cli.hints import on_network
from diffuse_core.cli.log_lines import tell
from diffuse_core.cli.terminal import Bar
from diffuse_core.configuration import MOST_HOSTS
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from diffuse_core.cli.demo_network import DemoNetwork
    from diffuse_core.settings import NetworkOptions


@click.command()
@click.option(
    "--hosts",
    type=click.IntRange(1, MOST_HOSTS),
    default=3,
    show_default=True,
    help="Host processes, each too small for the whole model.",
)
@dtyped("bf16")
@click.option("--ask", metavar="TEXT", help="Ask this, print the answer, stop everything.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 2**20),
    default=256,
    show_default=True,
    help="Most tokens of the answer to --ask.",
)
@common
def demo(**given: Any) -> None:
    """Run a sentinel and three hosts of a small model here, and ask or chat.

    \b
    diffuse-tui demo
    diffuse demo --ask "What is the capital of France?"
    """
    set_logging(given["log_level"], given["log_format"], no_data=given["ask"] is None)
    if given["bootstrap"]:
        raise UsageError("demo makes a network of its own; leave out --bootstrap")
    if given["network"].allowed is not None:
        raise UsageError("demo makes a network of its own, of new nodes; leave out --allow")
    if given["ask"] is not None and not given["ask"].strip():
        raise UsageError("--ask is empty; give a question, or leave it out to stay")
    run_until_done(_demo(given))


async def _demo(given: dict[str, Any]) -> None:
    place = given["state_dir"]
    async with demo_network(
        given["hosts"], given["network"], given["dtype"], place=place
    ) as network:
        if given["ask"]:
            await _ask(network, given)
            return
        where = f"--bootstrap {network.sentinel}{on_network(given['network'])}"
        tell(
            "the demo model is servable. Reach it from another terminal:\n"
            f'  diffuse query {where} --model demo --prompt "Hello"\n'
            f"  diffuse chat {where} --model demo\n"
            f"  diffuse status {where}\n"
            f"  diffuse-tui {where}\n"
            "Ctrl+C stops everything.",
            address=network.sentinel,
        )
        await network.watch()


@contextlib.asynccontextmanager
async def demo_network(
    hosts: int, network: NetworkOptions, dtype: str, *, place: str | None = None
) -> AsyncIterator[DemoNetwork]:
    """A demo network that is servable; stopped in any case at the end.

    Its nodes keep their state in a directory below `place`, else in a temporary one.

    Raises:
        DiffuseError: the model could not be had, or a process failed.
    """
    from diffuse_core.cli.demo_network import DemoNetwork, demo_shape
    from diffuse_core.wiring import find_device

    device = find_device("cpu", None)
    contract = chosen_contract(dtype) or "bf16"
    bar = Bar("getting the demo model")
    try:
        shape = await asyncio.to_thread(demo_shape, bar.show, contract)
    finally:
        bar.close()
    running = DemoNetwork(hosts, network, _say, place)
    try:
        await running.start(shape, contract, device.threads)
        yield running
    finally:
        try:
            _say("stopping")
        finally:  # Also where nobody reads any more what is said.
            await running.stop()


def _say(text: str) -> None:
    tell(f"demo: {text}", err=True)


async def _ask(network: DemoNetwork, given: dict[str, Any]) -> None:
    from diffuse_core.domain.view import ChatMessage, GenerateRequest
    from diffuse_core.wiring import observe

    request = GenerateRequest(
        model="demo",
        messages=(ChatMessage("user", given["ask"]),),
        max_tokens=given["max_tokens"],
    )
    async with observe((network.sentinel,), given["network"]) as (_, client):
        answer = await stream_answer(client, request)
    click.echo()
    print_timings(answer)
