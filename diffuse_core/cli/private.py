"""Options of private mode, and the layers that they have run here."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import adding, not_empty
from diffuse_core.cli.terminal import Bar
from diffuse_core.domain.plain_text import clean
from diffuse_core.domain.slices import MAX_LAYERS
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diffuse_core.services.own_layers import OwnLayers

private_options = adding(
    click.option(
        "--private",
        type=click.IntRange(0, MAX_LAYERS),
        default=0,
        show_default=True,
        metavar="K",
        help="Run the first K layers here: hosts get hidden states, and no token id of the "
        "prompt. That makes reading it costly, not impossible: hidden states can be inverted "
        "by whoever has the weights of these layers and searches. It is no encryption. The "
        "host of the last layers draws the answer and sees its tokens, without --private-tail.",
    ),
    click.option(
        "--private-tail",
        type=click.IntRange(0, MAX_LAYERS),
        default=0,
        show_default=True,
        metavar="T",
        help="With --private: run the last T layers and the head here as well, so that no "
        "token id of the answer is seen by a host either. The same limits hold.",
    ),
    click.option(
        "--private-model",
        metavar="PATH|ORG/NAME|demo",
        callback=not_empty,
        help="Where the weights of these layers are, if the model's name does not tell; they "
        "must be those of the network's model.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, 1024),
        help="With --private: compute threads; default as many as there are physical cores to "
        "use. Fewer are faster where other programs keep cores busy.",
    ),
)


class _Bars:
    """One progress bar after the other, each until its work is done."""

    def __init__(self) -> None:
        self._what = ""
        self._bar: Bar | None = None

    def show(self, what: str, fraction: float) -> None:
        """Draw how much of `what` is done; called in the thread that works."""
        if what != self._what:
            self.close()
            self._what, self._bar = what, Bar(clean(what))
        if self._bar is not None:
            self._bar.show(fraction)
            if fraction >= 1.0:
                self.close()

    def close(self) -> None:
        """Leave the line of the bar."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


@contextlib.contextmanager
def own_layers(given: dict[str, Any]) -> Iterator[OwnLayers | None]:
    """The layers that options have run here; None where all run on the network.

    Raises:
        UsageError: options of private mode without --private.
    """
    if not given["private"]:
        for name in ("private_tail", "private_model", "threads"):
            if given[name]:
                raise UsageError(f"--{name.replace('_', '-')} goes with --private K; add it")
        yield None
        return
    from diffuse_core import wiring

    bars = _Bars()
    model = given["model"]
    named = given["private_model"] or (model if model and Path(model).exists() else None)
    layers = wiring.own_layers(
        named, lambda text: click.echo(clean(text), err=True), bars.show, given["threads"]
    )
    try:
        yield layers
    except SystemExit as ended:
        # Interrupted. The thread may be deep in an import or a pass that nobody waits for now.
        bars.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)
    finally:
        bars.close()
        layers.close()
