"""What a configuration may say of rotary positions.

Only scalings that depend on the position alone are supported: one that follows how long the text
has grown ("dynamic", "longrope") gives other keys to the same position in another pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.models.setting_checks import (
    above_zero,
    count,
    flag,
    fraction,
    number,
    one_of,
    shown,
)
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from diffuse_core.adapters.models.setting_checks import Check

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings that depend on the position alone."""

LAYER_TYPES = ("full_attention", "sliding_attention")

_MOST_ITEMS = 64
_TYPE_KEYS = ("rope_type", "type")
_KNOWN: dict[str, Check] = {
    "rope_theta": above_zero,
    "partial_rotary_factor": fraction,
    "factor": above_zero,
    "low_freq_factor": above_zero,
    "high_freq_factor": above_zero,
    "original_max_position_embeddings": count(1, 2**30),
    "attention_factor": above_zero,
    "beta_fast": above_zero,
    "beta_slow": above_zero,
    "mscale": number,
    "mscale_all_dim": number,
    "truncate": flag,
}


def rope_table(value: object, key: str, where: str) -> dict[str, object]:
    """The settings of one kind of rotary positions, with its type under `rope_type`."""
    table = _table(value, key, where)
    found = table.get("rope_type", table.get("type", "default"))
    rope: dict[str, object] = {"rope_type": one_of(*ROPE_TYPES)(found, f"{key}.rope_type", where)}
    for name, item in table.items():
        if name in _TYPE_KEYS or item is None:
            continue
        check = _KNOWN.get(name)
        if check is None:
            raise ModelUnusable(
                f"{where}: {key}.{str(name)[:40]} is {shown(item)}, a setting of rotary positions "
                "that is not supported; use another model"
            )
        rope[name] = check(item, f"{key}.{name}", where)
    return rope


def rope_table_by_layer_type(value: object, key: str, where: str) -> dict[str, object]:
    """As `rope_table`, or one such table for each kind of attention."""
    table = _table(value, key, where)
    if not table or not set(table) <= set(LAYER_TYPES):
        return rope_table(value, key, where)
    return {
        name: rope_table(item, f"{key}.{name}", where)
        for name, item in table.items()
        if item is not None
    }


def _table(value: object, key: str, where: str) -> dict[str, object]:
    if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
        raise ModelUnusable(f"{where}: {key} is {shown(value)}, not a table of settings")
    return value
