"""What a model's configuration may say: an allow-list of checked, bounded settings.

A configuration file is data from strangers. Only settings that the proven architectures read are
kept, so that none can name code to fetch, ask for a size beyond reason, or switch on behaviour
that was never proven equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diffuse_core.domain.slices import MAX_LAYERS
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type`s whose slices are proven equal to the whole."""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings that depend on the position alone (others keep state between passes)."""

_REQUIRED = {
    "vocab_size": 2**24,
    "hidden_size": 2**20,
    "intermediate_size": 2**22,
    "num_hidden_layers": MAX_LAYERS,
    "num_attention_heads": 2**14,
    "max_position_embeddings": 2**30,
}
_ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
_LAYER_TYPES = ("full_attention", "sliding_attention")
_MAX_ROPE_ITEMS = 64


def clean_config(raw: Mapping[str, object], where: str) -> dict[str, object]:
    """The settings of `raw` that count, checked; `where` names the file in errors.

    Raises:
        ModelUnusable: the architecture is not proven, or a setting is missing, malformed,
            out of range, or asks for something that is not supported.
    """
    kind = raw.get("model_type")
    if kind not in ARCHITECTURES:
        raise ModelUnusable(
            f"{where}: the architecture {_shown(kind)} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    _refuse_unsupported(raw, where)
    config: dict[str, object] = {"model_type": kind}
    for key, top in _REQUIRED.items():
        config[key] = _count(raw.get(key), key, where, 1, top)
    for key, check in _OPTIONAL.items():
        if raw.get(key) is not None:
            config[key] = check(raw[key], key, where)
        elif key in raw and key in _NULLABLE:
            config[key] = None
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) != config["num_hidden_layers"]:
        raise ModelUnusable(f"{where}: layer_types does not list one kind for every layer")
    return config


def whole(config: Mapping[str, object], key: str) -> int:
    """A whole-number setting of a cleaned configuration."""
    value = config[key]
    assert isinstance(value, int)  # noqa: S101 - clean_config made it so
    return value


def _refuse_unsupported(raw: Mapping[str, object], where: str) -> None:
    if "auto_map" in raw:
        raise ModelUnusable(
            f"{where} wants code of its own to be run (auto_map), which Diffuse never does; "
            "use a model of a built-in architecture"
        )
    if raw.get("quantization_config") is not None:
        raise ModelUnusable(
            f"{where}: quantised safetensors are not supported; "
            "use the unquantised model or a GGUF file"
        )
    names = raw.get("architectures")
    if names is None:
        return
    if not isinstance(names, list) or not all(str(n).endswith("ForCausalLM") for n in names):
        raise ModelUnusable(
            f"{where}: this is {_shown(names)}, not a text-generating model (…ForCausalLM)"
        )


def _shown(value: object) -> str:
    return repr(value)[:80]


def _count(value: object, key: str, where: str, bottom: int, top: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not bottom <= value <= top:
        raise ModelUnusable(
            f"{where}: {key} is {_shown(value)}, not a whole number from {bottom} to {top}"
        )
    return value


def _up_to(top: int) -> Callable[[object, str, str], object]:
    return lambda value, key, where: _count(value, key, where, 1, top)


def _flag(value: object, key: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise ModelUnusable(f"{where}: {key} is {_shown(value)}, neither true nor false")
    return value


def _fraction(value: object, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise ModelUnusable(f"{where}: {key} is {_shown(value)}, not a number above 0")
    return float(value)


def _one_of(value: object, allowed: tuple[str, ...], key: str, where: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ModelUnusable(
            f"{where}: {key} {_shown(value)} is not supported; supported are {', '.join(allowed)}"
        )
    return value


def _rope(value: object, key: str, where: str) -> dict[str, object]:
    if not isinstance(value, dict) or len(value) > _MAX_ROPE_ITEMS:
        raise ModelUnusable(f"{where}: {key} is {_shown(value)}, not a table of settings")
    found = value.get("rope_type", value.get("type", "default"))
    kind = _one_of(found, ROPE_TYPES, f"{key}.rope_type", where)
    rope: dict[str, object] = {"rope_type": kind}
    for name, item in value.items():
        if name in ("rope_type", "type") or item is None:
            continue
        if isinstance(item, bool) or (isinstance(item, int | float) and 0 <= item < 1e12):
            rope[str(name)] = item
        else:
            raise ModelUnusable(f"{where}: {key}.{str(name)[:40]} is {_shown(item)}, no number")
    return rope


def _layer_types(value: object, key: str, where: str) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_LAYERS:
        raise ModelUnusable(f"{where}: {key} is {_shown(value)}, not a list of kinds of layers")
    return [_one_of(item, _LAYER_TYPES, key, where) for item in value]


_OPTIONAL: dict[str, Callable[[object, str, str], object]] = {
    "num_key_value_heads": _up_to(2**14),
    "head_dim": _up_to(2**13),
    "sliding_window": _up_to(2**30),
    "max_window_layers": lambda value, key, where: _count(value, key, where, 0, MAX_LAYERS),
    "tie_word_embeddings": _flag,
    "attention_bias": _flag,
    "mlp_bias": _flag,
    "use_sliding_window": _flag,
    "rms_norm_eps": _fraction,
    "rope_theta": _fraction,
    "rope_parameters": _rope,
    "rope_scaling": _rope,
    "hidden_act": lambda value, key, where: _one_of(value, _ACTIVATIONS, key, where),
    "layer_types": _layer_types,
}
# Where null differs from leaving the setting out: Mistral's default window is 4096.
_NULLABLE = ("sliding_window", "num_key_value_heads", "head_dim")
