"""A model's settings in small: every switch as it is, every size cut down.

Layers are chosen so that each kind of layer, and each step from one kind to the next, that the
real model has occurs in the small one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

WINDOW = 8
POSITIONS = 128
MIN_LAYERS, MAX_LAYERS = 4, 24

_HEADS = 4
_HEAD_DIMS = (16, 8, 24, 32, 40, 64, 80, 96, 128)
_SIZES = {
    "vocab_size": 96,
    "max_position_embeddings": POSITIONS,
    "sliding_window": WINDOW,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "ffn_hidden_size": 48,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
"""What a setting that is there and not null becomes, unless it is smaller already."""
_PER_LAYER = ("layer_types", "no_rope_layers", "mlp_layer_types")
_GROUPS = ("n_group", "topk_group", "num_experts_per_tok")


def miniature(kind: str, config: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a small model of the same architecture and switches.

    Args:
        kind: the `model_type`.
        config: the real model's settings under the library's names, without `model_type`.
    """
    cls: Any = CONFIG_MAPPING[kind]
    known = {field.name for field in fields(cls)}
    aliases = {name: true for name, true in (cls.attribute_map or {}).items() if true in known}
    small: dict[str, Any] = {aliases.get(name, name): value for name, value in config.items()}
    whole = cls(**small)
    names = known | small.keys()

    def change(name: str, value: object) -> None:
        name = aliases.get(name, name)
        if name in names and getattr(whole, name, None) is not None:
            small[name] = value

    for name, size in _SIZES.items():
        real = getattr(whole, name, None)
        if isinstance(real, int) and real > size:
            change(name, size)
    _shrink_heads(whole, change)
    for name in _GROUPS:
        change(name, _few(getattr(whole, name, None)))
    if getattr(whole, "topk_group", None) == getattr(whole, "n_group", None):
        change("topk_group", small.get("n_group"))
    elif getattr(whole, "topk_group", None) is not None:
        change("topk_group", 1)
    change("rope_parameters", _shorter(small.get("rope_parameters")))
    change("rope_scaling", _shorter(small.get("rope_scaling")))
    small.update(_layers(whole, aliases))
    return small


def _few(value: object) -> object:
    return min(value, 2) if isinstance(value, int) else value


def _shrink_heads(whole: Any, change: Any) -> None:
    real, real_hidden = whole.num_attention_heads, whole.hidden_size
    head_dim = _head_dim(whole)
    hidden = _HEADS * head_dim
    change("num_attention_heads", _HEADS)
    change("hidden_size", hidden)
    for name in ("num_key_value_heads", "num_kv_heads"):
        groups = getattr(whole, name, None)
        few = _HEADS if groups == real else 1 if groups == 1 else _HEADS // 2
        change(name, few)
    own = getattr(whole, "head_dim", None)
    if isinstance(own, int) and own == getattr(whole, "qk_rope_head_dim", None):
        change("head_dim", _SIZES["qk_rope_head_dim"])
    elif isinstance(own, int):
        # Heads that are together wider than the hidden state stay so.
        change("head_dim", head_dim if own * real == real_hidden else head_dim * 2)
    if getattr(whole, "word_embed_proj_dim", real_hidden) != real_hidden:
        change("word_embed_proj_dim", hidden // 2)
    else:
        change("word_embed_proj_dim", hidden)


def _head_dim(whole: Any) -> int:
    """Small, and with an even number of rotated numbers when only a part is rotated."""
    rope = getattr(whole, "rope_parameters", None)
    part = rope.get("partial_rotary_factor", 1.0) if isinstance(rope, Mapping) else 1.0
    for size in _HEAD_DIMS:
        rotated = int(size * part)
        if rotated >= 2 and rotated % 2 == 0:
            return size
    return _HEAD_DIMS[-1]


def _shorter(rope: object) -> object:
    if not isinstance(rope, Mapping):
        return rope
    short = {name: _shorter(value) for name, value in rope.items()}
    if short.get("original_max_position_embeddings"):
        short["original_max_position_embeddings"] = POSITIONS // 4
    return short


def _layers(whole: Any, aliases: Mapping[str, str]) -> dict[str, Any]:
    """The settings that say how many layers there are and of which kinds."""
    count: int = whole.num_hidden_layers
    lists = {
        name: list(values)
        for name in _PER_LAYER
        if isinstance(values := getattr(whole, name, None), list | tuple) and len(values) == count
    }
    dense = _dense(whole, count)
    kinds = [(*(values[i] for values in lists.values()), dense[i]) for i in range(count)]
    chosen = _chosen(kinds)
    small: dict[str, Any] = {name: [values[i] for i in chosen] for name, values in lists.items()}
    small[aliases.get("num_hidden_layers", "num_hidden_layers")] = len(chosen)
    if getattr(whole, "first_k_dense_replace", None) is not None:
        small["first_k_dense_replace"] = sum(dense[i] for i in chosen)
    if hasattr(whole, "decoder_sparse_step"):
        small["decoder_sparse_step"] = 1
        small["mlp_only_layers"] = [at for at, i in enumerate(chosen) if dense[i]]
    return small


def _dense(whole: Any, count: int) -> list[bool]:
    """Which layers of a mixture of experts have none."""
    first = getattr(whole, "first_k_dense_replace", None) or 0
    step = getattr(whole, "decoder_sparse_step", None) or 1
    only = getattr(whole, "mlp_only_layers", None) or ()
    return [i < first or i in only or (i + 1) % step != 0 for i in range(count)]


def _chosen(kinds: Sequence[Hashable]) -> list[int]:
    """Numbers of layers, ascending, among which every kind and every step between kinds is."""
    chosen: list[int] = []
    seen: set[tuple[Hashable, Hashable]] = set()
    for i, step in enumerate(itertools.pairwise(kinds)):
        if step in seen:
            continue
        seen.add(step)
        # The step before may end with this layer, or with one of its kind.
        if not chosen or kinds[chosen[-1]] != kinds[i]:
            chosen.append(i)
        chosen.append(i + 1)
    chosen = chosen or [0]
    # Short models cut badly; more of the last kind adds no step that is not allowed.
    chosen += [chosen[-1]] * (MIN_LAYERS - len(chosen))
    return chosen[:MAX_LAYERS]
