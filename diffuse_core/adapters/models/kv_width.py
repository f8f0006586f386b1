"""How many numbers a layer's cache of keys and values holds for one position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.adapters.models.model_config import architecture_of, sizes_of, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEEPSEEK = ("deepseek_v2", "deepseek_v3")


def kv_numbers(config: Mapping[str, object]) -> int:
    """Numbers that `transformers` caches for one position in one layer, of a cleaned config.

    Sliding windows are not reckoned with: this is what a position takes while it is cached.
    """
    hidden = sizes_of(config).hidden
    heads = whole(config, architecture_of(config).heads)
    kind = config["model_type"]
    if kind in _DEEPSEEK:
        # Cached as they come out of the compression, before every head makes its own of them.
        return whole(config, "kv_lora_rank") + whole(config, "qk_rope_head_dim")
    if kind == "falcon":
        return 2 * _falcon_heads(config, heads) * (hidden // heads)
    head_dim = config.get("head_dim") or hidden // heads
    groups = config.get("num_key_value_heads") or heads
    assert isinstance(head_dim, int)  # noqa: S101 - clean_config made it so
    assert isinstance(groups, int)  # noqa: S101 - clean_config made it so
    return 2 * groups * head_dim


def _falcon_heads(config: Mapping[str, object], heads: int) -> int:
    if config["new_decoder_architecture"]:
        # The groups' keys and values are repeated for every head before they are cached.
        return heads
    return 1 if config["multi_query"] else heads
