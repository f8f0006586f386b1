"""The command `bench`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import (
    common,
    find_bootstrap,
    not_empty,
    print_json,
    run_until_done,
    set_logging,
)
from diffuse_core.errors import DiffuseError

if TYPE_CHECKING:
    from diffuse_core.cli.bench.measure import Asked, Results
    from diffuse_core.domain.view import ModelView
    from diffuse_core.services.observer import Observer

MOST_SESSIONS = 64
MOST_KINDS = 8


class Counts(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Numbers of sessions: `1,4,8`; `0` for none."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers, each once."""
        if isinstance(value, tuple):
            return value
        pieces = [piece.strip() for piece in str(value).split(",")]
        if not all(piece.isascii() and piece.isdigit() and len(piece) < 4 for piece in pieces):
            self.fail(f"{value!r} is no list of numbers, as 1,4,8", param, ctx)
        counts = tuple(dict.fromkeys(number for number in map(int, pieces) if number))
        if len(counts) > MOST_KINDS or any(count > MOST_SESSIONS for count in counts):
            self.fail(f"at most {MOST_KINDS} numbers up to {MOST_SESSIONS}", param, ctx)
        return counts


@click.command()
@click.option(
    "--model",
    metavar="M",
    callback=not_empty,
    help="A model on the network, or the file that its hosts have. Default: the only one that "
    "can be served.",
)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(1, 2**20),
    default=512,
    show_default=True,
    help="Length of the prompt that is read.",
)
@click.option(
    "--tokens",
    type=click.IntRange(4, 2**16),
    default=64,
    show_default=True,
    help="Tokens of each answer.",
)
@click.option(
    "--concurrency",
    type=Counts(),
    default="1,4",
    show_default=True,
    metavar="A,B",
    help=f"How many sessions to run at once, each in a row of its own, up to {MOST_SESSIONS}; 0 "
    "for none. Their prompts are short: it is decoding that is measured.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How often all is measured; the table has medians. A round before them warms up.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=1,
    show_default=True,
    help="Of the words of the prompts.",
)
@click.option(
    "--limit-seconds",
    type=click.FloatRange(1, 24 * 3600),
    default=600,
    show_default=True,
    help="Stop after so long, and print what there is.",
)
@click.option(
    "--compare",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A former --json: print how many times as much each figure is now.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything, for scripts and --compare.")
@common
def bench(as_json: bool, **given: Any) -> None:
    """Measure a live network: first token, prefill, decode, sessions at once, hops.

    It asks as `query` does, so what it measures is what users get; and others on the network
    wait meanwhile. On a network in use take few rounds and --concurrency 0.

    Prompts are random words of the model's vocabulary and answers go on past their end, so that
    all lengths are exact. `1 session` is without speculation, `speculating` with it: how much
    that brings depends on the text, and random words are no usual one. Medians are over the
    rounds, least and most beside them.

    \b
    diffuse bench
    diffuse bench --model demo --prompt-tokens 128 --tokens 32 --rounds 5
    diffuse bench --json > before.json;  diffuse bench --compare before.json
    """
    set_logging(given["log_level"], given["log_format"])
    from diffuse_core.cli.bench.measure import Asked, Results
    from diffuse_core.cli.bench.report import plain_data, read_former, text_lines

    former = None if given["compare"] is None else read_former(given["compare"])
    asked = Asked(
        given["prompt_tokens"],
        given["tokens"],
        given["concurrency"],
        given["rounds"],
        given["seed"],
    )
    results = Results()
    conditions: dict[str, Any] = {}
    ended: BaseException | None = None
    try:
        run_until_done(_measure(given, asked, results, conditions))
    except (SystemExit, DiffuseError) as error:
        ended = error
    if conditions and (results.rows or ended is None):
        conditions["load_after"] = _load()
        if as_json:
            print_json(plain_data(results, conditions, former))
        else:
            click.echo("\n".join(text_lines(results, conditions, former)))
    if ended is not None:
        raise ended


async def _measure(
    given: dict[str, Any], asked: Asked, results: Results, conditions: dict[str, Any]
) -> None:
    """Fill `results` and `conditions`; returns at the limit, with what there is by then."""
    from diffuse_core.cli.bench.measure import Bench
    from diffuse_core.cli.model_choice import name_on_network, only_model
    from diffuse_core.domain.selection import find_model, require_servable
    from diffuse_core.wiring import observe

    bootstrap = find_bootstrap(given["bootstrap"], given["state_dir"])
    named = given["model"]
    if named is not None:
        named = await asyncio.to_thread(name_on_network, named)
    async with observe(bootstrap, given["network"]) as (observer, client):
        view = observer.view()
        name = only_model(view) if named is None else named
        model = require_servable(find_model(view, name))
        conditions |= _conditions(model, observer, asked, given)
        try:
            async with asyncio.timeout(given["limit_seconds"]):
                await Bench(observer, client, model, asked, results, _tell).run()
        except TimeoutError:
            click.echo(f"stopped after {given['limit_seconds']:g} s (--limit-seconds)", err=True)
        finally:
            if sys.stderr.isatty():
                click.echo("\r\x1b[K", err=True, nl=False)


def _tell(text: str) -> None:
    """What is being measured; on a terminal always on one line."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text} ...", err=True, nl=False)
    else:
        click.echo(text, err=True)


def _conditions(
    model: ModelView, observer: Observer, asked: Asked, given: dict[str, Any]
) -> dict[str, Any]:
    """Under which all of it was measured."""
    import platform
    from datetime import UTC, datetime

    import psutil

    from diffuse_core import __version__

    holders = [node for node in observer.view().nodes if node.fingerprint == model.fingerprint]
    return {
        "date": datetime.fromtimestamp(observer.clock.wall(), UTC).isoformat(timespec="seconds"),
        "model": model.id,
        "fingerprint": model.fingerprint,
        "contract": model.contract,
        "layers": model.layers,
        "hosts": [f"{n.short} {n.slice} ({n.version})" for n in holders],
        "network": given["network"].name,
        "version": __version__,
        "machine": f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} CPUs, "
        f"Python {platform.python_version()}",
        "prompt_tokens": asked.prompt_tokens,
        "tokens": asked.tokens,
        "concurrency": asked.concurrency,
        "rounds": asked.rounds,
        "seed": asked.seed,
        "load_before": _load(),
    }


def _load() -> float:
    import psutil

    return round(float(psutil.getloadavg()[0]), 2)
