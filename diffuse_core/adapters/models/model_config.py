"""What a model's configuration may say: an allow-list of checked, bounded settings.

A configuration file is data from strangers. Only settings that its architecture reads are kept,
so that none can name code to fetch, ask for a size beyond reason, or switch on behaviour that was
never proven equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.architectures import ARCHITECTURES
from diffuse_core.adapters.models.setting_checks import shown
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.adapters.models.architectures import Architecture

# Where null is a setting of its own: Mistral's window is 4096 when it is left out.
_NULLABLE = frozenset(
    {
        "sliding_window",
        "num_key_value_heads",
        "num_kv_heads",
        "final_logit_softcapping",
        "attn_logit_softcapping",
        "q_lora_rank",
        "n_group",
        "topk_group",
    }
)
_GENERATING = ("ForCausalLM", "LMHeadModel")
_PER_LAYER = ("layer_types", "no_rope_layers")


class Sizes(msgspec.Struct, frozen=True):
    """The sizes that every architecture has, whatever it calls them."""

    layers: int
    hidden: int
    vocab: int
    context: int


def clean_config(raw: Mapping[str, object], where: str) -> dict[str, object]:
    """The settings of `raw` that count, checked; `where` names the file in errors.

    Raises:
        ModelUnusable: the architecture is not proven, or a setting is missing, malformed,
            out of range, or asks for something that is not supported.
    """
    kind = raw.get("model_type")
    known = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ModelUnusable(
            f"{where}: the architecture {shown(kind)} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    _refuse_unsupported(raw, known, where)
    found = _named(raw, known)
    config: dict[str, object] = {"model_type": kind}
    for key, check in known.settings.items():
        value = found.get(key)
        if value is not None or key in known.required:
            config[key] = check(value, key, where)
        elif key in found and key in _NULLABLE:
            config[key] = None
    _check_lists(config, known, where)
    return config


def whole(config: Mapping[str, object], key: str) -> int:
    """A whole-number setting of a cleaned configuration."""
    value = config[key]
    assert isinstance(value, int)  # noqa: S101 - clean_config made it so
    return value


def architecture_of(config: Mapping[str, object]) -> Architecture:
    """The architecture of a cleaned configuration."""
    return ARCHITECTURES[str(config["model_type"])]


def sizes_of(config: Mapping[str, object]) -> Sizes:
    """The sizes in a cleaned configuration."""
    known = architecture_of(config)
    return Sizes(
        layers=whole(config, known.layers),
        hidden=whole(config, known.hidden),
        vocab=whole(config, "vocab_size"),
        context=whole(config, known.context),
    )


def _named(raw: Mapping[str, object], known: Architecture) -> dict[str, object]:
    """The settings under today's names; what is left out is what the architecture means by it."""
    found = dict(known.defaults)
    for key, value in raw.items():
        if key in known.aliases and value is not None:
            found[known.aliases[key]] = value
    nulls = {key: value for key, value in raw.items() if value is None and key in _NULLABLE}
    return {**found, **nulls, **{key: value for key, value in raw.items() if value is not None}}


def _refuse_unsupported(raw: Mapping[str, object], known: Architecture, where: str) -> None:
    if "auto_map" in raw and not _is_known_code(raw["auto_map"], known):
        raise ModelUnusable(
            f"{where} wants code of its own to be run (auto_map), which Diffuse never does; "
            "use a model of a built-in architecture"
        )
    if raw.get("quantization_config") is not None:
        raise ModelUnusable(
            f"{where}: quantised safetensors are not supported; "
            "use the unquantised model or a GGUF file"
        )
    for key in ("is_encoder_decoder", "add_cross_attention"):
        if raw.get(key):
            raise ModelUnusable(
                f"{where}: {key} is {shown(raw[key])}; only models that read and continue one "
                "text are supported"
            )
    _refuse_unread_kinds(raw, known, where)
    names = raw.get("architectures")
    if names is None:
        return
    if not isinstance(names, list) or not all(str(n).endswith(_GENERATING) for n in names):
        raise ModelUnusable(
            f"{where}: this is {shown(names)}, not a text-generating model (…ForCausalLM)"
        )


def _refuse_unread_kinds(raw: Mapping[str, object], known: Architecture, where: str) -> None:
    """Kinds of layers where the architecture has one kind only, which then may not be another."""
    kinds = raw.get("layer_types")
    if kinds is None or "layer_types" in known.settings:
        return
    windowed = "sliding_window" in known.settings and raw.get("sliding_window") is not None
    if windowed or not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise ModelUnusable(
            f"{where}: layer_types is {shown(kinds)}, which this architecture does not read; "
            "use another model"
        )


def _is_known_code(named: object, known: Architecture) -> bool:
    """Whether the code is that which is part of `transformers` by now, which is what runs."""
    if not isinstance(named, dict):
        return False
    return all(str(item).partition(".")[0] in known.code for item in named.values())


def _check_lists(config: Mapping[str, object], known: Architecture, where: str) -> None:
    for key in _PER_LAYER:
        kinds = config.get(key)
        if isinstance(kinds, list) and len(kinds) != config[known.layers]:
            raise ModelUnusable(f"{where}: {key} does not list one kind for every layer")
