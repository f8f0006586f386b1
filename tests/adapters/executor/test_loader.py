"""A Slice holds its own tensors and nothing else, and says no to what it cannot run rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.executor.skeleton import PROVEN
from diffuse_core.adapters.models import model_config
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.ports import RawTensor


class Altered:
    """A source whose tensors or settings were changed; tells what was read."""

    def __init__(self, inner: DirectorySource) -> None:
        self.inner = inner
        self.reads: list[str] = []
        self.changed: dict[str, RawTensor | None] = {}
        self.settings: dict[str, object] = {}
        self.extra: set[str] = set()

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def content(self) -> str:
        return self.inner.content

    @property
    def names(self) -> frozenset[str]:
        return self.inner.names | self.extra

    def shape(self, contract: Contract) -> ModelShape:
        return self.inner.shape(contract)

    def bundle(self) -> bytes:
        return self.inner.bundle()

    def config(self) -> dict[str, object]:
        return {**self.inner.config(), **self.settings}

    def read(self, name: str) -> RawTensor | None:
        self.reads.append(name)
        return self.changed[name] if name in self.changed else self.inner.read(name)


@pytest.fixture
def source(make_model: Callable) -> Altered:
    return Altered(DirectorySource(make_model("llama")[0]))


def silent(_: float) -> None:
    pass


def layers_read(source: Altered) -> set[str]:
    return {name.split(".")[2] for name in source.reads if ".layers." in name}


@pytest.mark.parametrize("tied", [False, True])
def test_only_the_tensors_of_the_slice_are_read_and_each_once(
    make_model: Callable, tied: bool
) -> None:
    source = Altered(DirectorySource(make_model("llama", tie_word_embeddings=tied)[0]))
    outside = {
        Slice(0, 2): {"model.embed_tokens.weight"},
        Slice(2, 4): set(),
        Slice(4, 6): {"model.norm.weight"}
        | ({"model.embed_tokens.weight"} if tied else {"lm_head.weight"}),
    }
    for part, others in outside.items():
        source.reads.clear()
        executor = load_slice(source, part, "fp32", silent)
        assert layers_read(source) == {str(i) for i in range(part.start, part.end)}
        assert {name for name in source.reads if ".layers." not in name} == others
        assert len(source.reads) == len(set(source.reads))
        assert executor.weight_bytes == source.shape("fp32").weight_bytes(part)


@pytest.mark.parametrize("kind", PROVEN)
@pytest.mark.parametrize("contract", ["fp32", "bf16"])
def test_what_is_held_weighs_what_the_shape_says(
    make_model: Callable, kind: str, contract: str
) -> None:
    source = DirectorySource(make_model(kind)[0])
    shape = source.shape(contract)
    whole = Slice(0, 6)
    assert load_slice(source, whole, contract, silent).weight_bytes == shape.weight_bytes(whole)


def test_a_tied_whole_holds_one_copy(make_model: Callable) -> None:
    source = DirectorySource(make_model("llama", tie_word_embeddings=True)[0])
    executor = load_slice(source, Slice(0, 6), "fp32", silent)
    norm = 32 * 4
    assert executor.weight_bytes == source.shape("fp32").weight_bytes(Slice(0, 6)) + norm


def test_progress_rises_to_one_and_may_cancel(source: Altered) -> None:
    seen: list[float] = []
    load_slice(source, Slice(0, 3), "bf16", seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) == len(source.reads)

    class CancelledError(Exception):
        pass

    def cancel(fraction: float) -> None:
        if fraction > 0.5:
            raise CancelledError

    source.reads.clear()
    with pytest.raises(CancelledError):
        load_slice(source, Slice(0, 3), "bf16", cancel)
    assert 0 < len(source.reads) < len(seen)


def test_a_missing_tensor_is_named(source: Altered) -> None:
    source.changed["model.layers.4.mlp.up_proj.weight"] = None
    load_slice(source, Slice(0, 4), "fp32", silent)
    with pytest.raises(ModelUnusable, match=r"no tensor model\.layers\.4\.mlp\.up_proj\.weight"):
        load_slice(source, Slice(4, 6), "fp32", silent)


def test_a_tensor_of_another_shape_is_named(source: Altered) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    raw = source.inner.read(name)
    source.changed[name] = msgspec.structs.replace(raw, shape=raw.shape[::-1])
    with pytest.raises(ModelUnusable, match=r"layers\.1\.self_attn\.k_proj.*shape"):
        load_slice(source, Slice(0, 2), "fp32", silent)


def test_a_tensor_unknown_to_the_architecture_is_named(source: Altered) -> None:
    source.extra = {"model.layers.1.self_attn.q_norm.weight"}
    load_slice(source, Slice(2, 4), "fp32", silent)
    with pytest.raises(ModelUnusable, match=r"layers\.1\.self_attn\.q_norm"):
        load_slice(source, Slice(0, 2), "fp32", silent)


@pytest.mark.parametrize("kind", ["gpt2", "mixtral", None, 3])
def test_unproven_architectures_are_refused_by_name(source: Altered, kind: object) -> None:
    source.settings["model_type"] = kind
    with pytest.raises(ModelUnusable, match=repr(kind)):
        load_slice(source, Slice(0, 2), "fp32", silent)


def test_settings_that_contradict_each_other_are_refused(source: Altered) -> None:
    source.settings["num_attention_heads"] = 5
    with pytest.raises(ModelUnusable, match="contradict"):
        load_slice(source, Slice(0, 2), "fp32", silent)


@pytest.mark.parametrize("contract", ["int8", "int4"])
def test_later_contracts_say_what_to_use(source: Altered, contract: str) -> None:
    with pytest.raises(UsageError, match="use bf16"):
        load_slice(source, Slice(0, 2), contract, silent)


def test_layers_beyond_the_model_are_refused(source: Altered) -> None:
    with pytest.raises(UsageError, match="has 6 layers"):
        load_slice(source, Slice(4, 7), "fp32", silent)


def test_sources_and_executor_agree_on_what_is_proven() -> None:
    assert PROVEN == model_config.ARCHITECTURES
