"""A tiny random Llama as a directory and as a GGUF file, written by other code than reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gguf
import huggingface_hub
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.adapters.models.hub_model import BIG, REPO, open_named
from tests.adapters.models.hub_server import hub_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from transformers import PreTrainedConfig

    from diffuse_core.adapters.models.hub_source import HubSource
    from diffuse_core.model_ports import WeightSource
    from tests.adapters.models.hub_server import Hub

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "sdpa",
}


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture
def read() -> Callable:
    """Put a tensor's pieces together, in the type it is stored in."""

    def gather(source: WeightSource, name: str) -> torch.Tensor:
        pieces = list(source.pieces(name))
        rows = [torch.frombuffer(p.data, dtype=DTYPES[p.dtype]).reshape(p.shape) for p in pieces]
        return torch.cat(rows) if len(rows) > 1 else rows[0]

    return gather


@pytest.fixture
def make_model() -> Callable:
    def make(kind: str = "llama", **settings: object) -> torch.nn.Module:
        torch.manual_seed(11)
        config = CONFIG_MAPPING[kind](**{**SIZES, **settings})
        model = AutoModelForCausalLM.from_config(config).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                torch.nn.init.normal_(parameter, 1.0, 0.1)
        return model

    return make


@pytest.fixture
def save(tmp_path: Path, make_model: Callable) -> Callable:
    """Save a model as a directory of safetensors."""

    def make(
        kind: str = "llama", name: str = "tiny", shard: str | None = None, **settings: object
    ) -> Path:
        directory = tmp_path / name
        options = {"max_shard_size": shard} if shard else {}
        make_model(kind, **settings).save_pretrained(directory, **options)
        return directory

    return make


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter does it (convert_hf_to_gguf.py, LlamaModel.permute)."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def add_key(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_uint32(key, value)


def keys_of(config: PreTrainedConfig) -> dict[str, object]:
    return {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "attention.key_length": config.head_dim if config.model_type == "qwen3" else None,
    }


def as_stored(name: str, numbers: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    permuting = config.model_type in ("llama", "smollm3")
    if permuting and ".q_proj." in name:
        return permuted(numbers, config.num_attention_heads)
    if permuting and ".k_proj." in name:
        return permuted(numbers, config.num_key_value_heads)
    return numbers


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable:
    """Write a model as GGUF; `changes` replaces or (None) drops key-values."""

    def write(
        model: torch.nn.Module,
        kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
        name: str = "tiny.gguf",
        changes: dict[str, object] | None = None,
        tensors: dict[str, np.ndarray] | None = None,
    ) -> Path:
        config = model.config
        arch = config.model_type
        writer = gguf.GGUFWriter(tmp_path / name, arch)
        for key, value in {**keys_of(config), **(changes or {})}.items():
            add_key(writer, f"{arch}.{key}", value)
        names = gguf.get_tensor_name_map(
            getattr(gguf.MODEL_ARCH, arch.upper()), config.num_hidden_layers
        )
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        for local, tensor in model.state_dict().items():
            if local in tied:
                continue
            stem, _, suffix = local.rpartition(".")
            numbers = as_stored(local, tensor.numpy(), config)
            coded = kind if numbers.ndim == 2 else gguf.GGMLQuantizationType.F32
            data = gguf.quants.quantize(np.ascontiguousarray(numbers), coded)
            writer.add_tensor(f"{names.get_name(stem)}.{suffix}", data, raw_dtype=coded)
        for extra, numbers in (tensors or {}).items():
            writer.add_tensor(extra, numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    return write


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback, for a user who has a token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with hub_server() as running:
        yield running
    huggingface_hub.close_session()


@pytest.fixture
def hub_directory(save: Callable) -> Path:
    """A model with a tokenizer, large enough that its slices show."""
    path = save(name="big", **BIG)
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    (path / "tokenizer.json").write_text(tokenizer.to_str())
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return path


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path) -> Callable:
    """Open a model of the hub as a new process does that has the same cache."""

    def make(text: str = REPO, cache: str = "cache", **settings: object) -> HubSource:
        return open_named(text, tmp_path / cache, **{"endpoint": hub.endpoint, **settings})

    return make
