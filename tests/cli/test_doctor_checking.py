"""Checks run beside each other: none hides another, none is waited for longer than it may take."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from diffuse_core.cli.doctor.checking import Check, blocking, run_checks
from diffuse_core.cli.doctor.findings import STATES, Finding, ok, problem
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.cli.doctor.showing import lines_of, plain_data, summary

if TYPE_CHECKING:
    from collections.abc import Sequence


async def all_of(*checks: Check) -> list[tuple[str, str, str]]:
    return [
        (group, one.name, one.state)
        async for group, findings in run_checks(checks)
        for one in findings
    ]


async def good() -> Finding:
    return ok("good", "fine")


async def forever() -> Finding:
    await asyncio.Event().wait()
    raise AssertionError


async def test_one_that_fails_or_hangs_hides_no_other() -> None:
    def broken() -> Finding:
        raise ZeroDivisionError("by nothing")

    async def nothing() -> Sequence[Finding] | None:
        return None

    found = await all_of(
        Check("A", "slow", forever, seconds=0.01),
        blocking("A", "broken", broken),
        Check("B", "none", nothing),
        Check("B", "good", good),
    )
    assert found == [("A", "slow", "warning"), ("A", "broken", "warning"), ("B", "good", "ok")]


async def test_what_hangs_in_a_thread_is_left_behind() -> None:
    release = threading.Event()

    def hang() -> Finding:
        release.wait()
        return ok("late", "too late")

    check = blocking("A", "disk", hang)
    (found,) = await all_of(Check(check.group, check.name, check.work, seconds=0.02))
    assert found[2] == "warning"
    (left,) = [one for one in threading.enumerate() if one.name == "check"]
    daemon = left.daemon
    release.set()
    left.join()
    assert daemon, "the process must not wait for it"


async def test_what_a_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await in_thread(fail)


async def test_checks_end_when_nobody_waits_any_more() -> None:
    ended = asyncio.Event()

    async def waiting() -> Finding:
        try:
            return await forever()
        finally:
            ended.set()

    told = run_checks([Check("A", "good", good), Check("A", "slow", waiting)])
    await anext(told)
    await told.aclose()
    assert ended.is_set()


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_a_shape_and_a_word(state: str) -> None:
    finding = Finding("disk", state, "x " * 80, "do it")
    lines = lines_of(finding, plain=False, colours=False)
    assert state in lines[0]
    assert lines[-1].strip() == "→ do it"
    assert all(len(line) <= 80 for line in lines)
    shapes = {lines_of(Finding("d", one, "x"), plain=False, colours=False)[0][0] for one in STATES}
    assert len(shapes) == len(STATES)
    assert all(line.isascii() for line in lines_of(finding, plain=True, colours=False))
    assert "\x1b" in lines_of(finding, plain=False, colours=True)[0]


def test_the_end_says_how_many_there_are() -> None:
    findings = [ok("a", "x"), problem("b", "x", "y"), problem("c", "x", "y")]
    assert summary(findings) == "2 problems, 1 ok"
    told = plain_data([("G", one) for one in findings], 1.234, complete=True)
    assert told["state"] == "problem"
    assert told["counts"]["problem"] == 2
    assert told["findings"][1]["step"] == "y"
