"""The second lock: what would be served wrong is found out before it is loaded."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from diffuse_core.adapters.executor import architectures, self_test, skeleton
from diffuse_core.adapters.executor.architectures import Architecture
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable
from tests.adapters.executor.cases import CASES
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from tests.adapters.executor.state_source import StateSource


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "_proven", set())


def settings(kind: str, case: int = 0) -> dict[str, object]:
    return tiny_model(kind, 6, **list(CASES[kind].values())[case])[0].config()


# Real models' shapes, for which the small one must be found.
REAL = {
    "SmolLM2 135M": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
    },
    "Gemma 3 1B": {
        "model_type": "gemma3_text",
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "head_dim": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "num_hidden_layers": 26,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "vocab_size": 262144,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000,
        "rope_local_base_freq": 10000,
    },
    "Phi 2": {
        "model_type": "phi",
        "hidden_size": 2560,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "partial_rotary_factor": 0.4,
        "vocab_size": 51200,
        "max_position_embeddings": 2048,
    },
    "Qwen 2.5 with an upper window": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "use_sliding_window": True,
        "sliding_window": 131072,
        "max_window_layers": 21,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
    },
    "DeepSeek V3": {"model_type": "deepseek_v3", "first_k_dense_replace": 3},
    "gpt-oss 20B": {"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32},
    "Bloom of two layers": {"model_type": "bloom", "n_layer": 2, "n_head": 8, "hidden_size": 64},
    "Llama of one layer": {"model_type": "llama", "num_hidden_layers": 1},
}


@pytest.mark.parametrize("name", REAL)
def test_real_shapes_are_proven_in_less_than_a_moment(name: str) -> None:
    prove(REAL[name])
    started = time.process_time()
    prove({**REAL[name], "initializer_range": 0.5})
    # 0.1 s when the machine is quiet.
    assert time.process_time() - started < 3


def test_it_is_done_once_for_each_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(self_test, "_fault", lambda kind, *_: asked.append(kind))
    for config in (settings("llama"), settings("llama"), settings("llama", 1)):
        prove(config)
    assert asked == ["llama", "llama"]


def test_it_leaves_torch_as_it_was() -> None:
    config = settings("gemma2")
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    before = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    prove(config)
    assert torch.equal(torch.rand(4), wanted)
    assert before == (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a final norm that stays": ("phi", {"norm": "norm"}),
    "another final norm that stays": ("gpt2", {"norm": "norm"}),
    "learned positions added on every stage": ("gpt2", {"before": {}}),
    "offset positions added on every stage": (
        "opt",
        {"before": {"project_in": "nothing"}},
    ),
    "an embedding norm on every stage": ("bloom", {"before": {}}),
    "an embedding scale on every stage": ("granite", {"before": {}}),
    "positions taken from the first stage too": ("gpt2", {"before": {"h": "zero"}}),
    "kinds of layers counted from the slice's start": ("gemma3_text", {"per_layer": ()}),
    "windows counted from the slice's start": ("cohere2", {"per_layer": ()}),
    "sinks and windows counted from the start": ("gpt_oss", {"per_layer": ()}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_of_the_table_is_found_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, changes = WRONG[name]
    config = settings(kind)
    prove(config)
    monkeypatch.setattr(self_test, "_proven", set())
    wrong = dataclasses.replace(architectures.ARCHITECTURES[kind], **changes)
    monkeypatch.setitem(architectures.ARCHITECTURES, kind, wrong)
    with pytest.raises(ModelUnusable, match=f"architecture {kind}.*the same text in slices"):
        prove(config)


def refused_when_loaded(source: StateSource, kind: str) -> None:
    with pytest.raises(ModelUnusable, match=f"{kind}.*not proven to give the same text"):
        load_slice(source, Slice(0, 2), "fp32", lambda _: None, lean=False)
    assert not source.fetched


def test_dense_layers_counted_from_the_slices_start_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As a configuration cut to the slice would build it: the first layers of *every* slice dense.
    cut = skeleton.Plan._cut

    def naive(plan: skeleton.Plan, model: Any, part: Slice) -> None:
        layers = plan.body(model).layers
        for at in range(min(plan._settings["first_k_dense_replace"], len(part))):
            if part.start + at < len(layers):
                layers[part.start + at].mlp = layers[0].mlp
        cut(plan, model, part)

    monkeypatch.setattr(skeleton.Plan, "_cut", naive)
    source = tiny_model("deepseek_v3", 6, **CASES["deepseek_v3"]["dense first"])[0]
    with pytest.raises(ModelUnusable, match=r"deepseek_v3.*the same text in slices"):
        load_slice(source, Slice(0, 2), "fp32", lambda _: None, lean=False)
    assert not source.fetched


def test_scales_by_the_slices_own_count_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = skeleton.Plan._cut

    def naive(plan: skeleton.Plan, model: Any, part: Slice) -> None:
        cut(plan, model, part)
        for at, layer in enumerate(plan.body(model).h):
            layer.attn.scaling = layer.attn.head_dim**-0.5 / (at + 1)

    monkeypatch.setattr(skeleton.Plan, "_cut", naive)
    refused_when_loaded(tiny_model("gpt2", 6, **CASES["gpt2"]["scaled by layer"])[0], "gpt2")


def test_what_the_library_itself_does_otherwise_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whole and cut alike wrong: only the comparison with the library's own pass tells.
    fill = skeleton._fill_tables

    def half(model: Any) -> None:
        fill(model)
        model.model.rotary_emb.inv_freq *= 0.5

    monkeypatch.setattr(skeleton, "_fill_tables", half)
    refused_when_loaded(tiny_model("llama")[0], "llama")


def test_an_architecture_outside_the_table_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(architectures.ARCHITECTURES, "llama")
    source = tiny_model("llama")[0]
    with pytest.raises(ModelUnusable, match="'llama' is not proven"):
        load_slice(source, Slice(0, 2), "fp32", lambda _: None)


def test_parts_that_the_library_gave_up_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        architectures.ARCHITECTURES, "llama", Architecture(before={"gone": "zero"})
    )
    with pytest.raises(ModelUnusable, match="no gone in LlamaModel"):
        prove(settings("llama"))
