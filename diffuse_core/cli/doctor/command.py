"""The command `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import common, not_empty, print_json, run_until_done, set_logging
from diffuse_core.settings import DEFAULT_PORT, parse_address, parse_bootstrap, state_dir

if TYPE_CHECKING:
    from diffuse_core.cli.doctor.checks import Asked
    from diffuse_core.cli.doctor.findings import Finding
    from diffuse_core.cli.doctor.showing import Screen

SERVE_PORT = 8080


@click.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="M",
    callback=not_empty,
    help="Also look at this model: a file, a directory, `demo`, or one of the hub, which is "
    "asked then. May be repeated.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=not_empty,
    help="Where a node is to listen. Default: as `host` does.",
)
@click.option(
    "--serve-port",
    type=click.IntRange(1, 2**16 - 1),
    help=f"Where `diffuse serve` is to listen. Default: {SERVE_PORT}, no fault if it is taken.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def doctor(as_json: bool, **given: Any) -> int:
    """Look for what keeps Diffuse from working here, and say what to do about it.

    Nothing is changed and no node is started; a small file is written and removed to see whether
    that can be done. What is not ok comes with a next step. It takes some ten seconds at most.

    \b
    ✓ ok        all is well
    ● note      worth to know
    ▲ warning   it works, and is slow or fragile
    ✗ problem   something will not work; the exit code is then 8

    \b
    diffuse doctor
    diffuse doctor --bootstrap 192.168.1.20:9440    does it lead to a network?
    diffuse doctor --model ./my.gguf --model demo   can these be hosted?
    diffuse doctor --json | jq '.findings[] | select(.state != "ok")'
    """
    set_logging(given["log_level"], given["log_format"], default="error")
    from diffuse_core.adapters.system_clock import SystemClock
    from diffuse_core.cli.doctor.findings import exit_code
    from diffuse_core.cli.doctor.showing import Screen, plain_data, summary

    asked = _asked(given)
    found: list[tuple[str, Finding]] = []
    clock = SystemClock()
    began = clock.monotonic()
    signal: SystemExit | None = None
    try:
        run_until_done(_check(asked, found, None if as_json else Screen()))
    except SystemExit as ended:
        signal = ended
    took = clock.monotonic() - began
    findings = [one for _, one in found]
    if as_json:
        print_json(plain_data(found, took, complete=signal is None))
    else:
        cut = "; the rest was not waited for" if signal is not None else ""
        click.echo(f"\n{summary(findings)} ({took:.1f} s{cut})")
    if signal is not None:
        raise signal
    return exit_code(findings)


def _asked(given: dict[str, Any]) -> Asked:
    from diffuse_core.cli.doctor.checks import Asked

    return Asked(
        state=state_dir(given["state_dir"]),
        network=given["network"],
        bootstrap=parse_bootstrap(given["bootstrap"]),
        listen=None if given["listen"] is None else parse_address(given["listen"], DEFAULT_PORT),
        serve_port=given["serve_port"] or SERVE_PORT,
        serve_named=given["serve_port"] is not None,
        models=tuple(dict.fromkeys(given["models"])),
        root=click.get_current_context().find_root().command,
    )


async def _check(asked: Asked, found: list[tuple[str, Finding]], screen: Screen | None) -> None:
    """Run all checks and show them as they come."""
    from contextlib import aclosing

    from diffuse_core.cli.doctor.checking import run_checks
    from diffuse_core.cli.doctor.checks import checks_of
    from diffuse_core.cli.doctor.looking import Look

    async with (
        Look(asked.bootstrap, asked.state, asked.network) as look,
        aclosing(run_checks(checks_of(asked, look))) as told,
    ):
        async for group, findings in told:
            found += [(group, one) for one in findings]
            if screen is not None:
                screen.show(group, findings)
