"""A Slice holds its own tensors and nothing else, and says no to what it cannot run rightly."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

from diffuse_core.adapters.executor.architectures import PROVEN
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models import model_config
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError
from diffuse_core.model_ports import RawTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from diffuse_core.model_ports import Progress
    from tests.adapters.executor.state_source import StateSource


@pytest.fixture
def source(make_model: Callable) -> StateSource:
    return make_model("llama")[0]


general = partial(load_slice, lean=False)


def silent(_: float) -> None:
    pass


def layers_read(source: StateSource) -> set[str]:
    return {name.split(".")[2] for name in source.reads if ".layers." in name}


@pytest.mark.parametrize("tied", [False, True])
def test_only_the_tensors_of_the_slice_are_read_and_each_once(
    make_model: Callable, tied: bool
) -> None:
    source = make_model("llama", tie_word_embeddings=tied)[0]
    outside = {
        Slice(0, 2): {"model.embed_tokens.weight"},
        Slice(2, 4): set(),
        Slice(4, 6): {"model.norm.weight"}
        | ({"model.embed_tokens.weight"} if tied else {"lm_head.weight"}),
    }
    for part, others in outside.items():
        source.reads.clear()
        source.fetched.clear()
        executor = general(source, part, "fp32", silent)
        assert layers_read(source) == {str(i) for i in range(part.start, part.end)}
        assert {name for name in source.reads if ".layers." not in name} == others
        assert len(source.reads) == len(set(source.reads))
        assert source.fetched == set(source.reads)
        assert executor.weight_bytes == sum(source.state[name].nbytes for name in source.reads)


def test_a_tied_whole_holds_one_copy(make_model: Callable) -> None:
    source = make_model("llama", tie_word_embeddings=True)[0]
    executor = general(source, Slice(0, 6), "fp32", silent)
    assert executor.weight_bytes == sum(tensor.nbytes for tensor in source.state.values())


def test_progress_rises_to_one_and_may_cancel(source: StateSource) -> None:
    seen: list[float] = []
    general(source, Slice(0, 3), "bf16", seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) == len(source.reads) + 1
    # Nothing had to be brought here: what is told is what was read.
    assert seen[0] == 0.0
    assert 0.0 < seen[1] < 0.5

    class CancelledError(Exception):
        pass

    def cancel(fraction: float) -> None:
        if fraction > 0.7:
            raise CancelledError

    source.reads.clear()
    with pytest.raises(CancelledError):
        general(source, Slice(0, 3), "bf16", cancel)
    assert 0 < len(source.reads) < len(seen) - 1


@pytest.mark.parametrize("lean", [False, True])
def test_half_the_progress_is_of_what_has_to_be_fetched(source: StateSource, lean: bool) -> None:
    whole = source.fetch

    def slowly(names: Collection[str], progress: Progress) -> None:
        progress(0.5)
        whole(names, progress)

    here: list[float] = []
    load_slice(source, Slice(0, 3), "fp32", here.append, lean=lean)
    source.fetch = slowly
    seen: list[float] = []
    load_slice(source, Slice(0, 3), "fp32", seen.append, lean=lean)
    assert seen[:2] == [0.25, 0.5]
    assert seen == sorted(seen)
    assert here[0] == 0.0
    assert here[-1] == seen[-1] == 1.0
    assert here[1:] == pytest.approx([2 * fraction - 1 for fraction in seen[2:]])


def test_a_missing_tensor_is_named_before_anything_is_fetched(source: StateSource) -> None:
    del source.state["model.layers.4.mlp.up_proj.weight"]
    general(source, Slice(0, 4), "fp32", silent)
    source.fetched.clear()
    with pytest.raises(ModelUnusable, match=r"no tensor model\.layers\.4\.mlp\.up_proj\.weight"):
        general(source, Slice(4, 6), "fp32", silent)
    assert not source.fetched


def test_a_tensor_of_another_shape_is_named(source: StateSource) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    source.state[name] = source.state[name].T
    with pytest.raises(ModelUnusable, match=r"layers\.1\.self_attn\.k_proj.*shape"):
        general(source, Slice(0, 2), "fp32", silent)


@pytest.mark.parametrize("change", ["short", "long", "narrow"])
def test_pieces_that_make_no_whole_are_refused(
    source: StateSource, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    truly = source.pieces

    def pieces(name: str) -> Iterator[RawTensor]:
        given = list(truly(name))
        if change == "short":
            given.pop()
        elif change == "long":
            given.append(given[0])
        else:
            given[0] = RawTensor("fp32", (len(given[0].data) // 4, 1), given[0].data)
        yield from given

    monkeypatch.setattr(source, "pieces", pieces)
    with pytest.raises(ModelUnusable, match="not read in its own shape"):
        general(source, Slice(1, 3), "fp32", silent)


@pytest.mark.parametrize(
    "name", ["model.layers.1.self_attn.q_norm.weight", "model.embed_again.weight"]
)
def test_a_tensor_unknown_to_the_architecture_is_named(source: StateSource, name: str) -> None:
    general(source, Slice(0, 4), "fp32", silent)
    source.state[name] = torch.ones(8)
    with pytest.raises(ModelUnusable, match=re.escape(name)):
        general(source, Slice(0, 2), "fp32", silent)


def test_a_tensor_unknown_in_layers_held_elsewhere_is_not_looked_at(source: StateSource) -> None:
    source.state["model.layers.1.self_attn.q_norm.weight"] = torch.ones(8)
    assert general(source, Slice(2, 4), "fp32", silent).slice == Slice(2, 4)


@pytest.mark.parametrize(
    "kind", ["lfm2", "mamba", "mamba2", "jamba", "rwkv", "t5", "gemma3", "no-such", "", None, 3]
)
def test_unproven_architectures_are_refused_by_name(source: StateSource, kind: object) -> None:
    source.settings["model_type"] = kind
    with pytest.raises(ModelUnusable, match=repr(str(kind))):
        general(source, Slice(0, 2), "fp32", silent)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su"])
@pytest.mark.parametrize("nested", [False, True])
def test_rotary_positions_with_a_memory_are_refused_by_name(
    make_model: Callable, kind: str, nested: bool
) -> None:
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 2.0}
    settings: object = {"full_attention": rope, "sliding_attention": rope} if nested else rope
    source = make_model("gemma3_text" if nested else "llama")[0]
    source.settings["rope_parameters"] = settings
    with pytest.raises(ModelUnusable, match=f"{kind}|contradict"):
        general(source, Slice(0, 2), "fp32", silent)


def test_settings_that_contradict_each_other_are_refused(source: StateSource) -> None:
    source.settings["num_attention_heads"] = 5
    with pytest.raises(ModelUnusable, match="contradict"):
        general(source, Slice(0, 2), "fp32", silent)


@pytest.mark.parametrize("contract", ["int8", "int4"])
def test_the_general_path_says_which_contract_to_use(source: StateSource, contract: str) -> None:
    with pytest.raises(UsageError, match="architecture llama; use bf16"):
        general(source, Slice(0, 2), contract, silent)


def test_layers_beyond_the_model_are_refused(source: StateSource) -> None:
    with pytest.raises(UsageError, match="has 6 layers"):
        general(source, Slice(4, 7), "fp32", silent)


def test_what_sources_let_in_is_proven_here() -> None:
    assert set(model_config.ARCHITECTURES) <= set(PROVEN)
