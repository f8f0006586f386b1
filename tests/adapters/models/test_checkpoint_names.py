"""Checkpoints of every architecture, today's and older ones, give the module's own parameters."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.errors import ModelUnusable
from tests.adapters.models.tiny import TINY, persistent, tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIED = {"lm_head.weight"}


def wanted_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter once, and every buffer that a file has."""
    return {**dict(model.named_parameters()), **dict(persistent(model))}


def assert_same(source: DirectorySource, model: torch.nn.Module, read: Callable) -> None:
    wanted = wanted_of(model)
    assert source.names == set(wanted)
    for name, tensor in wanted.items():
        assert source.shape_of(name) == tuple(tensor.shape), name
        assert torch.equal(read(source, name), tensor), name


def rewritten(directory: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    path = directory / "model.safetensors"
    state = load_file(path)
    edit(state)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    return directory


def renamed(state: dict[str, torch.Tensor], pattern: str, new: str) -> None:
    for name in list(state):
        state[re.sub(pattern, new, name)] = state.pop(name)


@pytest.mark.parametrize("kind", TINY)
def test_what_the_library_saved_is_what_the_module_has(
    tmp_path: Path, read: Callable, kind: str
) -> None:
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    assert_same(DirectorySource(tmp_path), model, read)


@pytest.mark.parametrize("shard", [None, "60KB"])
def test_experts_are_put_together_from_several_files(
    tmp_path: Path, read: Callable, monkeypatch: pytest.MonkeyPatch, shard: str | None
) -> None:
    model = tiny_model("mixtral")
    options = {"max_shard_size": shard} if shard else {}
    model.save_pretrained(tmp_path, **options)
    source = DirectorySource(tmp_path)
    name = "model.layers.2.mlp.experts.gate_up_proj"
    assert [piece.shape for piece in source.pieces(name)] == [(4, 224, 64)]
    assert source.bits_of(name) == 32
    assert source.codes(name) is None
    assert len(list(source.stored([name]))) == 8
    # No more than one expert at a time where that is all there is room for.
    monkeypatch.setattr("diffuse_core.adapters.models.parameter.PIECE_BYTES", 1)
    assert [piece.shape for piece in source.pieces(name)] == [(1, 224, 64)] * 4
    assert_same(source, model, read)


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"])
def test_experts_that_are_stored_as_one_tensor(tmp_path: Path, read: Callable, kind: str) -> None:
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    save_file(
        {name: tensor.contiguous() for name, tensor in wanted_of(model).items()},
        tmp_path / "model.safetensors",
    )
    assert_same(DirectorySource(tmp_path), model, read)


def with_masks(state: dict[str, torch.Tensor]) -> None:
    """As the first GPT-2 files: the bare body, and the causal mask in every layer."""
    renamed(state, r"^transformer\.", "")
    for layer in range(4):
        state[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 8, 8)
        state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)


def as_pythia(state: dict[str, torch.Tensor]) -> None:
    assert "embed_out.weight" in state
    for layer in range(4):
        own = f"gpt_neox.layers.{layer}.attention."
        state[own + "bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        state[own + "masked_bias"] = torch.tensor(-1e9, dtype=torch.float16)
        state[own + "rotary_emb.inv_freq"] = torch.ones(4)


def as_first_opt(state: dict[str, torch.Tensor]) -> None:
    renamed(state, r"^model\.", "")
    state["decoder.version"] = torch.tensor([3])


def guessing_ahead(state: dict[str, torch.Tensor]) -> None:
    state["model.layers.4.eh_proj.weight"] = torch.ones(64, 128)
    state["model.layers.4.mlp.experts.0.up_proj.weight"] = torch.ones(4, 4)


OWN = "model.layers.0.self_attn"
LAYOUTS: dict[str, tuple[str, Callable[[dict[str, torch.Tensor]], None]]] = {
    "the first of GPT-2": ("gpt2", with_masks),
    "a bare bloom": ("bloom", lambda state: renamed(state, r"^transformer\.", "")),
    "a bare OPT": ("opt", as_first_opt),
    "a bare llama": ("llama", lambda state: renamed(state, r"^model\.", "")),
    "pythia": ("gpt_neox", as_pythia),
    "deepseek with a layer that guesses ahead": ("deepseek_v3", guessing_ahead),
    "llama with its rotary table": (
        "llama",
        lambda state: state.update(
            {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
        ),
    ),
    "mixtral of today": (
        "mixtral",
        lambda state: renamed(state, r"\.block_sparse_moe\.", ".mlp."),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts(tmp_path: Path, read: Callable, layout: str) -> None:
    kind, edit = LAYOUTS[layout]
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    before = DirectorySource(tmp_path).content
    source = DirectorySource(rewritten(tmp_path, edit))
    assert_same(source, model, read)
    assert source.content == before


@pytest.mark.parametrize("kind", ["gpt2", "falcon"])
def test_a_head_that_is_stored_beside_the_embedding_counts(
    tmp_path: Path, read: Callable, kind: str
) -> None:
    """The library does not tie what the files have twice with different numbers."""
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    head = torch.randn(96, 64)
    source = DirectorySource(
        rewritten(tmp_path, lambda state: state.update({"lm_head.weight": head}))
    )
    assert source.names == set(wanted_of(model)) | TIED
    assert torch.equal(read(source, "lm_head.weight"), head)
    assert not source.shape("bf16").tied


EXPERT = "model.layers.1.block_sparse_moe.experts.{}.w{}.weight"
DAMAGED: dict[str, dict[str, torch.Tensor | None]] = {
    "lacks or skips expert 2": {EXPERT.format(2, n): None for n in (1, 2, 3)},
    "expert 1 of .* has no gate matrix": {EXPERT.format(1, 1): None},
    "expert 3 of .* has no down matrix": {EXPERT.format(3, 2): None},
    r"has shape \(100, 64\)": {EXPERT.format(1, 3): torch.ones(100, 64)},
    "of BF16, which does not go": {
        EXPERT.format(1, 3): torch.ones(112, 64, dtype=torch.bfloat16),
    },
    r"has shape \(4,\) of F32": {EXPERT.format(0, 1): torch.ones(4)},
    "twice": {"layers.0.input_layernorm.weight": torch.ones(64)},
    "vision.x, which the architecture mixtral does not": {"vision.x": torch.ones(4)},
    "stored as I64": {"model.norm.weight": torch.ones(64, dtype=torch.int64)},
    r"stored as F32 with shape \(\)": {"model.norm.weight": torch.tensor(1.0)},
}


@pytest.mark.parametrize("message", DAMAGED)
def test_what_does_not_go_together_is_refused(tmp_path: Path, message: str) -> None:
    tiny_model("mixtral").save_pretrained(tmp_path)

    def edit(state: dict[str, torch.Tensor]) -> None:
        for name, tensor in DAMAGED[message].items():
            if tensor is None:
                del state[name]
            else:
                state[name] = tensor

    rewritten(tmp_path, edit)
    with pytest.raises(ModelUnusable, match=message):
        DirectorySource(tmp_path)


def test_a_tensor_that_no_layer_has_is_left_to_whoever_loads_it(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    name = "model.layers.1.self_attn.sinks"
    source = DirectorySource(
        rewritten(tmp_path, lambda state: state.update({name: torch.ones(4)}))
    )
    assert name in source.names


def test_an_expert_that_ends_early_is_noticed(tmp_path: Path) -> None:
    tiny_model("mixtral").save_pretrained(tmp_path)
    source = DirectorySource(tmp_path)
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(ModelUnusable, match="the file changed"):
        [list(source.pieces(name)) for name in source.names if "experts" in name]


def test_layers_behind_the_last_are_passed_over_only_as_many_as_are_told(tmp_path: Path) -> None:
    tiny_model("deepseek_v3").save_pretrained(tmp_path)
    rewritten(tmp_path, lambda state: state.update({"model.layers.5.x.weight": torch.ones(2, 2)}))
    with pytest.raises(ModelUnusable, match="has tensors of layer 5"):
        DirectorySource(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_nextn_predict_layers": 2}))
    assert DirectorySource(tmp_path).shape("bf16").layers == 4
