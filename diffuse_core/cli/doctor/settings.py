"""The settings of all commands, as the file and the environment give them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from diffuse_core.cli.doctor.findings import Finding, ok, problem, warning
from diffuse_core.configuration import CACHE_DIR, variable
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.errors import UsageError
from diffuse_core.own_paths import full_path, user_directory
from diffuse_core.settings import cache_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import click

SHOWN = 3


def settings_facts(root: click.Command) -> tuple[str, list[str], dict[str, str]]:
    """Where the file is, what cannot be used, and variables that are no settings."""
    from diffuse_core.cli.config_rows import check_rows, unknown_variables
    from diffuse_core.cli.layers import checked_config
    from diffuse_core.configuration import Sources

    try:
        file = checked_config(root)
    except UsageError as error:
        return "", [str(error)], unknown_variables(root, os.environ)
    where = str(file.path) if file.there else ""
    wrong = check_rows(root, Sources(os.environ, file))
    return where, wrong, unknown_variables(root, os.environ)


def cache_here() -> Path:
    """The cache directory; the file of settings does not count where it cannot be used.

    Raises:
        UsageError: there is no such place, as without a home.
    """
    try:
        return cache_dir()
    except UsageError:
        origin = variable((), CACHE_DIR.key)
        named = os.environ.get(origin)
        return full_path(named) if named else user_directory("cache", f"{origin} to a directory")


def judge_settings(where: str, wrong: Sequence[str], strange: Mapping[str, str]) -> Finding:
    """Whether all can be used. `strange` are variables, each with a hint of what is meant."""
    told = {"file": where, "problems": list(wrong), "unknown_variables": sorted(strange)}
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        found = clean_line("; ".join(wrong[:SHOWN])) + more
        return problem("settings", found, "see: diffuse config check", **told)
    if strange:
        names = ", ".join(f"{name} is no setting{hint}" for name, hint in strange.items())
        step = "rename or unset it; `diffuse config check` tells all"
        return warning("settings", clean_line(names), step, **told)
    return ok("settings", where or "no file, and nothing wrong in the environment", **told)
