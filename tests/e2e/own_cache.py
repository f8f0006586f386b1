"""A cache of a test's own, but for what each of its processes would otherwise check anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.settings import cache_dir

if TYPE_CHECKING:
    from pathlib import Path


def own_cache(directory: Path) -> str:
    """Make it; where it is. Blueprints are those of all tests: a first start takes seconds."""
    shared = cache_dir() / "blueprints"
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = directory / "cache"
    cache.mkdir()
    (cache / "blueprints").symlink_to(shared, target_is_directory=True)
    return str(cache)
