"""What commands that run for weeks have in common for whoever operates them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import a_path, adding
from diffuse_core.errors import UsageError
from diffuse_core.settings import parse_address

if TYPE_CHECKING:
    from diffuse_core.operating import Operations

METRICS_HOST = "127.0.0.1"

operated = adding(
    click.option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Tell figures for Prometheus at http://HOST:PORT/metrics, and at /healthz and "
        "/readyz how this runs. HOST is 127.0.0.1 when left out: anybody who reaches the port "
        "may read them. Default: do not.",
    ),
    click.option(
        "--log-file",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=a_path,
        metavar="FILE",
        help="Log to FILE instead of stderr. It is begun anew at 8 MiB, and 3 old ones are kept.",
    ),
)
"""Their options: `metrics` and `log_file`."""


def operations(given: dict[str, Any]) -> Operations:
    """What the options of `operated` say, and the environment that systemd gave.

    To be called once: what systemd gave is taken out of the environment.

    Raises:
        UsageError: --metrics is no address.
    """
    from diffuse_core.adapters.sd_notify import take_notifier
    from diffuse_core.operating import Operations

    return Operations(metrics_address(given["metrics"]), take_notifier())


def metrics_address(text: str | None) -> tuple[str, int] | None:
    """What --metrics says: a port of loopback, or HOST:PORT.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        text = f"{METRICS_HOST}:{text}"
    try:
        return parse_address(text)
    except UsageError as error:
        raise UsageError(f"--metrics: {error}; or PORT alone, of 127.0.0.1") from error
