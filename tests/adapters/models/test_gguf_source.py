"""A GGUF file gives the weights and settings of the model it was made from."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from diffuse_core.adapters.models.gguf_header import CODES
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable

Q = gguf.GGMLQuantizationType


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("tied", [False, True])
def test_plain_weights_are_those_of_the_model(
    make_model: Callable, write_gguf: Callable, read: Callable, arch: str, tied: bool
) -> None:
    model = make_model(
        arch,
        tie_word_embeddings=tied,
        **({"head_dim": 32} if arch == "qwen3" else {}),
        **({"pad_token_id": None} if arch == "smollm3" else {}),
    )
    source = GgufSource(write_gguf(model))
    state = dict(model.state_dict())
    if tied:
        del state["lm_head.weight"]
    assert source.names == set(state)
    for name, tensor in state.items():
        assert torch.equal(read(source, name), tensor), name
    assert source.shape_of("model.layers.3.mlp.up_proj.weight") is None
    # Under every contract the head is laid out anew beside the embedding.
    assert source.shape("fp32").tied is False
    assert source.shape("int8").tied is False
    assert source.config()["tie_word_embeddings"] is tied


@pytest.mark.parametrize(
    ("kind", "tolerance"), [(Q.F16, 1e-3), (Q.BF16, 1e-2), (Q.Q8_0, 1e-2), (Q.Q4_1, 0.2)]
)
def test_coded_weights_are_near_and_exactly_as_the_library_decodes(
    make_model: Callable, write_gguf: Callable, read: Callable, kind: Q, tolerance: float
) -> None:
    model = make_model(head_dim=16)
    path = write_gguf(model, kind)
    source = GgufSource(path)
    state = model.state_dict()
    for name, tensor in state.items():
        error = (read(source, name).float() - tensor).norm() / tensor.norm()
        assert error < tolerance, name
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    exact = gguf.quants.dequantize(stored["blk.1.ffn_up.weight"].data, kind)
    decoded = read(source, "model.layers.1.mlp.up_proj.weight").float()
    assert np.array_equal(decoded.numpy(), exact.astype(np.float32))


def test_biases_of_queries_and_keys_are_put_in_order_too(
    make_model: Callable, write_gguf: Callable, read: Callable
) -> None:
    model = make_model(attention_bias=True, mlp_bias=True)
    source = GgufSource(write_gguf(model))
    assert source.config()["attention_bias"] is True
    for name, tensor in model.state_dict().items():
        assert torch.equal(read(source, name), tensor), name


def test_settings_are_those_of_the_model(make_model: Callable, write_gguf: Callable) -> None:
    model = make_model(rope_parameters={"rope_type": "default", "rope_theta": 50000.0})
    config = GgufSource(write_gguf(model)).config()
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_key_value_heads"):
        assert config[key] == getattr(model.config, key)
    assert config["rope_theta"] == 50000.0
    assert config["rms_norm_eps"] == pytest.approx(1e-5)
    linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    scaled = GgufSource(write_gguf(model, changes=linear, name="linear.gguf")).config()
    assert scaled["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def llama3(factor: float) -> dict[str, object]:
    return {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_rope_is_recognised_by_its_divisors(
    make_model: Callable, write_gguf: Callable, factor: float
) -> None:
    model = make_model(rope_parameters=llama3(factor), hidden_size=256)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, torch.device("cpu"))
    plain = 1.0 / 500000.0 ** (torch.arange(0, 64, 2).float() / 64)
    divisors = {"rope_freqs.weight": (plain / scaled).numpy().astype(np.float32)}
    config = GgufSource(write_gguf(model, tensors=divisors)).config()
    wanted = {key: value for key, value in llama3(factor).items() if key != "rope_theta"}
    assert config["rope_scaling"] == wanted
    odd = {"rope_freqs.weight": np.linspace(1, 9, 32, dtype=np.float32)}
    with pytest.raises(ModelUnusable, match="rotary divisors"):
        GgufSource(write_gguf(model, tensors=odd, name="odd.gguf"))


def test_the_shape_counts_every_number_of_the_model(
    make_model: Callable, write_gguf: Callable
) -> None:
    model = make_model()
    shape = GgufSource(write_gguf(model, Q.Q8_0)).shape("bf16")
    total = sum(parameter.numel() for parameter in model.parameters())
    assert shape.weight_bytes(Slice(0, 3)) == total * 2
    assert (shape.layers, shape.hidden, shape.vocab, shape.context) == (3, 64, 96, 256)
    assert shape.kv_bytes == 2 * 2 * 16 * 2
    assert shape.embedding_bytes == 96 * 64 * 2
    assert shape.head_bytes == (96 * 64 + 64) * 2


def test_content_follows_the_weights_and_not_the_path(
    make_model: Callable, write_gguf: Callable
) -> None:
    model = make_model()
    path = write_gguf(model)
    copy = path.with_name("other name.gguf")
    shutil.copy(path, copy)
    first, second = GgufSource(path), GgufSource(copy)
    assert first.content == second.content
    assert (first.id, second.id) == ("tiny", "other-name")
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 0.5
    changed = GgufSource(write_gguf(model, name="changed.gguf"))
    coded = GgufSource(write_gguf(model, Q.Q8_0, name="coded.gguf"))
    other = GgufSource(write_gguf(model, name="base.gguf", changes={"rope.freq_base": 7.0}))
    contents = {first.content, changed.content, coded.content, other.content}
    assert len(contents) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"attention.sliding_window": 64}, "sliding"),
        ({"attention.key_length": 16, "rope.dimension_count": 8}, "part of each head"),
        ({"rope.scaling.type": "yarn"}, "yarn"),
        ({"block_count": 4}, "no tensors of layer 3"),
        ({"block_count": 2}, "has tensors of layer 2"),
        ({"block_count": 2**31}, "num_hidden_layers"),
        ({"context_length": None}, "max_position_embeddings is None"),
        ({"attention.head_count": 0}, "num_attention_heads"),
        ({"attention.head_count": 3}, "not 3 heads"),
        ({"attention.head_count": "four"}, "num_attention_heads"),
        ({"embedding_length": 65}, "shape"),
    ],
)
def test_what_is_not_proven_or_contradicts_is_refused(
    make_model: Callable, write_gguf: Callable, changes: dict[str, object], message: str
) -> None:
    path = write_gguf(make_model(), changes=changes)
    with pytest.raises(ModelUnusable, match=message):
        GgufSource(path)


def test_a_tensor_that_the_architecture_does_not_know_is_refused(
    make_model: Callable, write_gguf: Callable
) -> None:
    extra = {"blk.0.attn_sub_norm.weight": np.ones(64, np.float32)}
    with pytest.raises(ModelUnusable, match="attn_sub_norm"):
        GgufSource(write_gguf(make_model(), tensors=extra))


def test_other_architectures_are_refused_by_name(make_model: Callable, tmp_path: object) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnusable, match=r"'gpt2'.*llama, qwen2, qwen3"):
        GgufSource(path)


def test_a_file_that_shrank_after_opening_is_noticed(
    make_model: Callable, write_gguf: Callable
) -> None:
    path = write_gguf(make_model())
    source = GgufSource(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(ModelUnusable, match="the file changed"):
        [list(source.pieces(name)) for name in source.names]
    path.unlink()
    with pytest.raises(ModelUnusable, match="cannot be read"):
        list(source.pieces("model.norm.weight"))


def test_the_table_of_encodings_is_that_of_the_library() -> None:
    for number, (name, block, size) in CODES.items():
        assert Q(number).name == name
        assert gguf.GGML_QUANT_SIZES[Q(number)] == (block, size)
