"""`diffuse verify`: does a model say the same in slices as it does whole?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from diffuse_core.cli.common import (
    a_size,
    chosen_contract,
    chosen_device,
    common,
    device,
    dtyped,
    not_empty,
    print_json,
    set_logging,
    table,
    threaded,
)
from diffuse_core.cli.terminal import Bar
from diffuse_core.domain.sizes import parse_size
from diffuse_core.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from diffuse_core.services.verification import Outcome, Report


@click.command()
@click.argument("model", callback=not_empty)
@click.option(
    "--tokens",
    type=click.IntRange(1, 4096),
    default=24,
    show_default=True,
    help="Tokens to generate from each prompt.",
)
@dtyped("bf16 (fp32 where only that is fast)")
@device
@threaded
@click.option(
    "--memory",
    metavar="SIZE",
    callback=a_size,
    help="What weights may take; a model that needs more is verified window by window. Default: "
    "most of what is free.",
)
@click.option(
    "--against-library/--no-against-library",
    default=None,
    help="Compare with transformers' own generate, in fp32; by default when the model is small.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@common
def verify(model: str, **given: Any) -> None:
    """Check that a model says the same in slices as it does whole, token for token.

    MODEL is what --model takes: `demo`, a GGUF file, a directory, or ORG/NAME[@REVISION]. Every
    cut into two slices is run against the whole, some into three and four, and some with their
    slices loaded apart. Exit code 3 says that one differs.

    \b
    diffuse verify demo
    diffuse verify ./model.gguf --dtype int4
    diffuse verify org/name --dtype fp32 --against-library
    """
    set_logging(given["log_level"], given["log_format"])
    contract = chosen_contract(given["dtype"])
    if given["against_library"] and contract != "fp32":
        raise UsageError("--against-library compares in fp32: add --dtype fp32")
    from diffuse_core.services.verification import check_report
    from diffuse_core.wiring import VerifyOptions, verify_model

    options = VerifyOptions(
        contract=contract,
        device=chosen_device(given["device"]),
        threads=given["threads"],
        memory=parse_size(given["memory"]) if given["memory"] else None,
        tokens=given["tokens"],
        against_library=given["against_library"],
    )
    bar, opening = Bar("verifying"), Bar("getting the model")
    try:
        report = verify_model(model, options, bar.tell, opening.show)
    except KeyboardInterrupt:
        bar.close()
        # At once: there is nothing to put away, and torch takes its time to end in order.
        os._exit(EXIT_INTERRUPTED)
    finally:
        opening.close()
        bar.close()
    if given["as_json"]:
        print_json(_json(report))
    else:
        _print(report)
    check_report(report)


def _json(report: Report) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(report), "equal": report.equal, "same_bits": report.same_bits}


def _print(report: Report) -> None:
    threads = f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    click.echo(
        f"{report.model}: {report.layers} layers, {report.contract} on {report.device}, {threads}"
        + ("" if report.whole else "; too large to be held whole, verified window by window")
    )
    rows = [("WAY", "RESULT", "LARGEST DIFFERENCE", "SECONDS", "TOKENS/S")]
    rows += [_row(outcome) for outcome in report.outcomes]
    click.echo(table(rows))
    count = len(report.outcomes)
    if report.equal:
        bits = ", bit for bit" if report.same_bits else ""
        click.echo(f"equal: {count} of {count} ways say the same, token for token{bits}")
    else:
        wrong = sum(not outcome.same_tokens for outcome in report.outcomes)
        click.echo(f"DIFFERENT: {wrong} of {count} ways do not say what the whole says")


def _row(outcome: Outcome) -> tuple[str, str, str, str, str]:
    same = "same bits" if outcome.same_bits else "same tokens"
    return (
        outcome.way,
        same if outcome.same_tokens else "DIFFERENT",
        f"{outcome.difference:.2g}",
        f"{outcome.seconds:.2f}",
        f"{outcome.tokens_per_s:.1f}" if outcome.tokens_per_s else "-",
    )
