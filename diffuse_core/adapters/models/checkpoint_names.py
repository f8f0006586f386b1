"""From the tensors in a checkpoint's files to the parameters of the whole `transformers` module.

Checkpoints were written by many versions of many programs. The library renames and merges their
tensors when it loads them (transformers/conversion_mapping.py); here the same is done with the
headers alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from diffuse_core.adapters.models.model_config import sizes_of, whole
from diffuse_core.adapters.models.model_layout import layout_of
from diffuse_core.adapters.models.parameter import Parameter, stored_as_is
from diffuse_core.adapters.models.stored_tensor import PLAIN
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diffuse_core.adapters.models.model_layout import Layout
    from diffuse_core.adapters.models.stored_tensor import StoredTensor

    Experts = dict[str, dict[int, dict[str, StoredTensor]]]

# What follows from the settings (tables, causal masks, versions), and was stored all the same.
_TABLES = re.compile(r"(?:.+\.)?rotary_emb\.inv_freq")
_UNREAD = {
    "gpt2": re.compile(r"(?:.+\.)?attn\.(?:masked_)?bias"),
    "gpt_neox": re.compile(r".+\.attention\.(?:masked_)?bias"),
    "opt": re.compile(r"(?:model\.)?decoder\.version"),
}
_RENAMED = {
    "gpt_neox": (re.compile(r"^embed_out\."), "lm_head."),
    "mixtral": (re.compile(r"\.block_sparse_moe\."), ".mlp."),
}
_EXPERT = re.compile(r"(.+\.mlp\.experts)\.(\d{1,6})\.(\w{1,16})\.weight")
_ROLES = {
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
}
_FUSED = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}


def parameters_of(
    config: Mapping[str, object], stored: Mapping[str, StoredTensor], where: str
) -> dict[str, Parameter]:
    """The module's parameters by name, of the tensors that `stored` has by the files' names.

    Raises:
        ModelUnusable: a tensor that the architecture does not have outside its layers, or one
            that cannot be read or does not go with the others.
    """
    layout = layout_of(config)
    parameters: dict[str, Parameter] = {}
    experts: Experts = {}
    for tensor in _read_by_the_module(config, layout, stored, where):
        match = _EXPERT.fullmatch(tensor.name)
        if match and match[3] in _ROLES:
            own = experts.setdefault(match[1], {}).setdefault(int(match[2]), {})
            own[_ROLES[match[3]]] = tensor
        else:
            parameters[tensor.name] = stored_as_is(tensor)
    for prefix, numbered in experts.items():
        for parameter in _fused(prefix, numbered, where):
            parameters[parameter.name] = parameter
    return parameters


def _read_by_the_module(
    config: Mapping[str, object],
    layout: Layout,
    stored: Mapping[str, StoredTensor],
    where: str,
) -> Iterable[StoredTensor]:
    """The tensors that count, under the module's names."""
    kind = str(config["model_type"])
    known = layout.first_names | layout.last_names
    taken: set[str] = set()
    for label, tensor in stored.items():
        name = _module_name(kind, layout, label)
        if name is None or _predicts_ahead(config, layout, name):
            continue
        if name in taken:
            raise ModelUnusable(f"{where} has the tensor {name} twice; it is damaged")
        taken.add(name)
        if layout.layer_of(name) is None and name not in known:
            raise ModelUnusable(
                f"{where} has a tensor {label}, which the architecture {kind} does not read: it "
                "is no plain text-generating model; use another"
            )
        if tensor.kind not in PLAIN or not tensor.shape:
            raise ModelUnusable(
                f"{where}: tensor {label} is stored as {tensor.kind} with shape {tensor.shape}; "
                f"only rows of {', '.join(PLAIN)} can be read: use the unquantised model or a "
                "GGUF file"
            )
        yield msgspec.structs.replace(tensor, name=name)


def _module_name(kind: str, layout: Layout, label: str) -> str | None:
    """The module's name of a stored tensor; None for what follows from the settings."""
    if _TABLES.fullmatch(label) or (kind in _UNREAD and _UNREAD[kind].fullmatch(label)):
        return None
    name = label
    if kind in _RENAMED:
        old, new = _RENAMED[kind]
        name = old.sub(new, name)
    # Files of the bare body leave its name out.
    bare = not name.startswith((layout.prefix, "lm_head."))
    return layout.prefix + name if bare else name


def _predicts_ahead(config: Mapping[str, object], layout: Layout, name: str) -> bool:
    """Whether it is of the layers behind the last that guess tokens ahead, which nobody needs."""
    layer, count = layout.layer_of(name), config.get("num_nextn_predict_layers")
    if layer is None or not count:
        return False
    last = sizes_of(config).layers
    return last <= layer < last + whole(config, "num_nextn_predict_layers")


def _fused(
    prefix: str, numbered: dict[int, dict[str, StoredTensor]], where: str
) -> Iterable[Parameter]:
    """The library's tensors of all experts: those of gate and up in one, gate first."""
    wanted = set(range(len(numbered)))
    if set(numbered) != wanted:
        odd = min(set(numbered).symmetric_difference(wanted))
        raise ModelUnusable(f"{where}: {prefix} lacks or skips expert {odd}; download it again")
    for fused, roles in _FUSED.items():
        rows = []
        for expert in range(len(numbered)):
            own = numbered[expert]
            lacking = [role for role in roles if role not in own]
            if lacking:
                raise ModelUnusable(
                    f"{where}: expert {expert} of {prefix} has no {lacking[0]} matrix; "
                    "download it again"
                )
            rows.append(tuple(own[role] for role in roles))
        yield _joined(f"{prefix}.{fused}", tuple(rows))


def _joined(name: str, rows: tuple[tuple[StoredTensor, ...], ...]) -> Parameter:
    first = rows[0][0]
    for row in rows:
        for tensor in row:
            if tensor.shape != first.shape or tensor.kind != first.kind or len(tensor.shape) != 2:
                raise ModelUnusable(
                    f"{tensor.path}: tensor {tensor.label} has shape {tensor.shape} of "
                    f"{tensor.kind}, which does not go with {first.shape} of {first.kind} of "
                    f"{first.label}; download the model again"
                )
    height, width = first.shape
    return Parameter(name, (len(rows), height * len(rows[0]), width), rows)
