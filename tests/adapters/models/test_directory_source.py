"""A directory of safetensors gives its weights; a damaged or hostile one is refused."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.bundle import bundle_digest, open_bundle
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable
from tests.adapters.models.tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "model.layers.1.mlp.up_proj.weight"


def edit_config(directory: Path, **changes: object) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return directory


def edit_header(path: Path, edit: Callable[[dict], object]) -> None:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    edit(table)
    head = json.dumps(table).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + content[8 + length :])


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_tensor_is_read_as_stored(
    save: Callable, read: Callable, kind: str, dtype: torch.dtype
) -> None:
    directory = save(kind)
    path = directory / "model.safetensors"
    state = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(state, path)
    source = DirectorySource(directory)
    assert source.names == set(state)
    for name, tensor in state.items():
        stored = read(source, name)
        assert stored.dtype == dtype
        assert torch.equal(stored, tensor), name
        assert source.shape_of(name) == tuple(tensor.shape)
        assert source.bits_of(name) == 8 * dtype.itemsize
        assert source.codes(name) is None
    total = sum(tensor.numel() for tensor in state.values())
    assert source.shape("bf16").weight_bytes(Slice(0, 3)) == 2 * total
    assert source.shape("fp32").weight_bytes(Slice(0, 3)) == 4 * total


def test_a_tensor_that_is_not_there_has_neither_shape_nor_numbers(save: Callable) -> None:
    source = DirectorySource(save())
    name = "model.layers.9.mlp.up_proj.weight"
    assert source.shape_of(name) is None
    for look in (source.pieces, source.codes, source.bits_of):
        with pytest.raises(ModelUnusable, match=f"no tensor {name}"):
            look(name)


def test_what_is_here_needs_no_fetching(save: Callable) -> None:
    told: list[float] = []
    source = DirectorySource(save())
    source.fetch(source.names, told.append)
    assert told == [1.0]


def test_a_big_tensor_comes_in_pieces_of_whole_rows(
    save: Callable, read: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DirectorySource(save())
    before = {name: read(source, name) for name in (NAME, "model.norm.weight")}
    monkeypatch.setattr("diffuse_core.adapters.models.stored_tensor.PIECE_BYTES", 1000)
    assert {piece.shape for piece in source.pieces(NAME)} == {(3, 64), (2, 64)}
    assert [piece.shape for piece in source.pieces("model.norm.weight")] == [(64,)]
    for name, tensor in before.items():
        assert torch.equal(read(source, name), tensor)
    # A row that is larger than a piece comes alone.
    monkeypatch.setattr("diffuse_core.adapters.models.stored_tensor.PIECE_BYTES", 100)
    assert {piece.shape for piece in source.pieces(NAME)} == {(1, 64)}
    assert [p.shape for p in source.pieces("model.norm.weight")] == [(25,), (25,), (14,)]


def test_content_follows_the_weights_and_not_their_files(save: Callable) -> None:
    one = save()
    sharded = save(name="sharded", shard="40KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    moved = one.with_name("moved")
    shutil.copytree(one, moved)
    first = DirectorySource(one)
    assert first.content == DirectorySource(sharded).content == DirectorySource(moved).content
    assert (first.id, DirectorySource(moved).id) == ("tiny", "moved")
    state = load_file(moved / "model.safetensors")
    state[NAME][0, 0] += 1
    save_file(state, moved / "model.safetensors")
    assert DirectorySource(moved).content != first.content
    assert DirectorySource(edit_config(sharded, rms_norm_eps=1e-3)).content != first.content


def test_settings_that_do_not_touch_the_weights_do_not_count(save: Callable) -> None:
    directory = save()
    before = DirectorySource(directory).content
    edit_config(directory, transformers_version="9", use_cache=False, eos_token_id=[1, 2])
    assert DirectorySource(directory).content == before


def test_nothing_but_what_the_architecture_reads_is_kept(save: Callable) -> None:
    directory = edit_config(
        save(), _attn_implementation="someone/kernel", use_kernels=True, attn_implementation="x"
    )
    config = DirectorySource(directory).config()
    assert not {key for key in config if "kernel" in key or "attn" in key}


def test_stored_rotary_frequencies_are_ignored(save: Callable) -> None:
    path = save() / "model.safetensors"
    state = load_file(path)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(state, path)
    assert not [name for name in DirectorySource(path.parent).names if "rotary" in name]


BAD_CONFIGS = {
    "architecture 'mamba'": {"model_type": "mamba"},
    "code of its own": {"auto_map": {"AutoModel": "evil.Evil"}},
    "quantised safetensors": {"quantization_config": {"bits": 4}},
    "not a text-generating model": {"architectures": ["LlamaForSequenceClassification"]},
    "hidden_size is 1000000000000": {"hidden_size": 10**12},
    "vocab_size is -1": {"vocab_size": -1},
    "vocab_size is 96.0": {"vocab_size": 96.0},
    "num_hidden_layers is True": {"num_hidden_layers": True},
    "no tensors of layer 3": {"num_hidden_layers": 4},
    "has tensors of layer 2": {"num_hidden_layers": 2},
    "max_position_embeddings is None": {"max_position_embeddings": None},
    "rope_type 'dynamic'": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
    "rope_type 'longrope'": {"rope_scaling": {"type": "longrope"}},
    r"rope_parameters.short_factor is \[1\]": {
        "rope_parameters": {"rope_type": "yarn", "short_factor": [1]}
    },
    "rope_parameters is 3": {"rope_parameters": 3},
    "hidden_act 'xielu'": {"hidden_act": "xielu"},
    "rms_norm_eps is 'x'": {"rms_norm_eps": "x"},
    "attention_bias is 1": {"attention_bias": 1},
    r"shape \(96, 64\)": {"vocab_size": 97},
}


@pytest.mark.parametrize("message", BAD_CONFIGS)
def test_bad_settings_are_refused_by_name(save: Callable, message: str) -> None:
    with pytest.raises(ModelUnusable, match=message):
        DirectorySource(edit_config(save(), **BAD_CONFIGS[message]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "malformed"),
        (b"[1]", "malformed"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "malformed|recursion|None"),
        (b" " * (2**20 + 1), "larger than"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_a_config_that_is_no_config_is_refused(
    save: Callable, content: bytes, message: str
) -> None:
    directory = save()
    (directory / "config.json").write_bytes(content)
    with pytest.raises(ModelUnusable, match=message):
        DirectorySource(directory)


def test_a_file_cut_at_half_is_refused(save: Callable) -> None:
    path = save() / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(
        ModelUnusable, match=r"truncated: tensor \S+ ends at byte \d+ but the file"
    ):
        DirectorySource(path.parent)
    path.write_bytes(content[:100])
    with pytest.raises(ModelUnusable, match="truncated: its header ends"):
        DirectorySource(path.parent)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no safetensors file"),
        (b"\xff" * 8 + b"{}", "no safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        ((2).to_bytes(8, "little") + b"[]", "header cannot be read"),
        ((9).to_bytes(8, "little") + b'{"a": 1} ', "header cannot be read"),
    ],
)
def test_a_file_that_is_no_safetensors_is_refused(
    save: Callable, content: bytes, message: str
) -> None:
    path = save() / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelUnusable, match=message):
        DirectorySource(path.parent)


BAD_ENTRIES = {
    "stored as I8": {"dtype": "I8"},
    "bytes for shape": {"shape": [128, 65]},
    "bytes for shape ": {"shape": [2**40, 2**40]},
    "bytes for": {"shape": [0]},
    "header cannot be read": {"shape": [-128, -64]},
    "header cannot": {"data_offsets": [-4, 32764]},
    "truncated: tensor": {"data_offsets": [2**40, 2**40 + 32768]},
    "has -": {"data_offsets": [32768, 0]},
}


@pytest.mark.parametrize("message", BAD_ENTRIES)
def test_a_header_that_lies_is_refused(save: Callable, message: str) -> None:
    path = save() / "model.safetensors"
    edit_header(path, lambda table: table[NAME].update(BAD_ENTRIES[message]))
    with pytest.raises(ModelUnusable, match=message):
        DirectorySource(path.parent)


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "model.norm.weight", "model.embed_tokens.weight"]
)
def test_a_missing_end_is_named(save: Callable, name: str) -> None:
    path = save() / "model.safetensors"
    edit_header(path, lambda table: table.pop(name))
    with pytest.raises(ModelUnusable, match=f"no tensor {name}"):
        DirectorySource(path.parent)


def test_a_missing_shard_is_named(save: Callable) -> None:
    directory = save(shard="40KB")
    lost = sorted(directory.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelUnusable, match=f"lacks {lost.name}"):
        DirectorySource(directory)


@pytest.mark.parametrize(
    "file",
    ["../tiny2/model.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", ".safetensors"],
)
def test_an_index_cannot_lead_out_of_the_directory(save: Callable, file: str) -> None:
    save(name="tiny2")
    directory = save(shard="40KB")
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][NAME] = file
    path.write_text(json.dumps(index))
    with pytest.raises(ModelUnusable, match=r"index\.json is malformed"):
        DirectorySource(directory)


def test_an_index_that_names_the_wrong_shard_is_refused(save: Callable) -> None:
    directory = save(shard="40KB")
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    others = set(index["weight_map"].values()) - {index["weight_map"][NAME]}
    index["weight_map"][NAME] = min(others)
    path.write_text(json.dumps(index))
    with pytest.raises(ModelUnusable, match=f"no tensor {NAME}"):
        DirectorySource(directory)


def test_several_files_without_an_index_are_refused(save: Callable) -> None:
    directory = save(shard="40KB")
    (directory / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelUnusable, match="with all its files"):
        DirectorySource(directory)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_the_bundle_says_how_far_the_model_reaches(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    model.save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    data = DirectorySource(tmp_path).bundle()
    bundle = open_bundle(data, bundle_digest(data))
    assert bundle.context == getattr(model.config, "max_position_embeddings", 2048)
    assert bundle.tokenizer_json == (tmp_path / "tokenizer.json").read_bytes()


def test_tensors_that_lie_over_each_other_are_refused(save: Callable) -> None:
    path = save() / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    names = [f"model.layers.{layer}.mlp.down_proj.weight" for layer in (0, 1)]
    head[names[0]]["data_offsets"] = head[names[1]]["data_offsets"]
    changed = json.dumps(head).encode()
    path.write_bytes(len(changed).to_bytes(8, "little") + changed + data[8 + length :])
    with pytest.raises(ModelUnusable, match="lie over each other"):
        DirectorySource(path.parent)


def test_a_pipe_in_place_of_the_weights_is_not_waited_for(save: Callable) -> None:
    path = save() / "model.safetensors"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelUnusable, match="no regular file"):
        DirectorySource(path.parent)
