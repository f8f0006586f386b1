"""Running checks: all at once, each with its own deadline, none in the way of another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, warning
from diffuse_core.cli.doctor.in_thread import in_thread
from diffuse_core.domain.plain_text import clean_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

    Found = Finding | Sequence[Finding] | None

CHECK_S = 8.0


@dataclass(frozen=True)
class Check:
    """One check: what it is called when it fails, its group, and the work."""

    group: str
    name: str
    work: Callable[[], Awaitable[Found]]
    seconds: float = CHECK_S


def blocking(group: str, name: str, work: Callable[[], Found]) -> Check:
    """A check that blocks, and so runs in a thread."""
    return Check(group, name, lambda: in_thread(work))


async def run_checks(checks: Iterable[Check]) -> AsyncGenerator[tuple[str, list[Finding]], None]:
    """Run all of them together; the findings of each with its group, in the order given."""
    tasks = [(check.group, asyncio.ensure_future(_run(check))) for check in checks]
    try:
        for group, task in tasks:
            yield group, await task
    finally:
        for _, task in tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)


async def _run(check: Check) -> list[Finding]:
    try:
        async with asyncio.timeout(check.seconds):
            found = await check.work()
    except TimeoutError:
        text = f"this check was not done within {check.seconds:g} s"
        return [warning(check.name, text, "something it asks does not answer; try again")]
    except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
        text = clean_line(f"this check failed: {type(error).__name__}: {error}")
        return [warning(check.name, text, "what it looks at is in no usual state: look there")]
    if found is None:
        return []
    return [found] if isinstance(found, Finding) else list(found)
