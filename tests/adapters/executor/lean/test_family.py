"""What the lean engine takes on, and what it leaves to the general one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.general import GeneralEngine
from diffuse_core.adapters.executor.lean.engine import LeanEngine
from diffuse_core.adapters.executor.lean.family import KINDS, Family, family_of
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.models.shape_count import LEAN
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import UsageError
from tests.adapters.executor.cases import CASES, MIXED
from tests.adapters.executor.lean.models import FAMILY_CASES, LAYERS
from tests.adapters.executor.parity import EngineChain, generated
from tests.adapters.executor.stages import Chain
from tests.adapters.executor.tiny import SIZES, tiny_model

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract

WHOLE = Slice(0, LAYERS)


def family(kind: str, **settings: Any) -> Family | None:
    config = CONFIG_MAPPING[kind](**{**SIZES, "num_hidden_layers": LAYERS, **settings})
    return family_of(config)


def test_the_kinds_are_those_whose_memory_is_reckoned_so() -> None:
    assert KINDS == LEAN


@pytest.mark.parametrize(("kind", "case"), FAMILY_CASES)
def test_every_case_of_the_family_is_taken_on(kind: str, case: str) -> None:
    source, _ = tiny_model(kind, LAYERS, **CASES[kind][case])
    engine = load_slice(source, Slice(1, 3), "fp32", lambda _: None)._engine
    assert isinstance(engine, LeanEngine)


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "another activation": ("llama", {"hidden_act": "gelu"}),
    "a head of odd width": ("llama", {"head_dim": 3}),
    "partly rotary": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            }
        },
    ),
    "partly rotary mistral": (
        "mistral",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.25,
            }
        },
    ),
    "heads that do not share evenly": (
        "qwen2",
        {"num_attention_heads": 4, "num_key_value_heads": 3},
    ),
    "a mixture of experts": ("mixtral", {}),
    "norms after": ("olmo2", {}),
    "scales": ("granite", {}),
    "gemma": ("gemma", {"head_dim": 16}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_not_of_the_family(name: str) -> None:
    kind, settings = OTHERS[name]
    assert family(kind, **settings) is None


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_another_activation_is_computed_by_the_general_engine(act: str) -> None:
    source, model = tiny_model("llama", LAYERS, hidden_act=act)
    executor = load_slice(source, WHOLE, "fp32", lambda _: None)
    assert isinstance(executor._engine, GeneralEngine)
    prompt = [3, 1, 4, 1, 5]
    assert Chain([executor]).generate(prompt, 8) == generated(model, prompt, 8)


@pytest.mark.parametrize("contract", ["int8", "int4"])
def test_integers_are_refused_by_name_outside_the_family(contract: Contract) -> None:
    for source in (
        tiny_model("llama", LAYERS, hidden_act="gelu")[0],
        tiny_model("olmo2", LAYERS)[0],
    ):
        with pytest.raises(UsageError, match=f"{contract} is not computed for .* use bf16"):
            load_slice(source, WHOLE, contract, lambda _: None)
        assert not source.fetched


def test_integers_are_refused_on_other_devices() -> None:
    source, _ = tiny_model("llama", LAYERS)
    with pytest.raises(UsageError, match="int4 is computed on the CPU only"):
        load_slice(source, WHOLE, "int4", lambda _: None, device="cuda")


def test_windows_and_rotary_layers_are_told_by_layer() -> None:
    none = (None,) * LAYERS
    assert family("llama").windows == none
    assert family("mistral", sliding_window=8).windows == (8,) * LAYERS
    assert family("mistral", sliding_window=None).windows == none
    # A window that is switched off is none, whatever its size.
    assert family("qwen2", use_sliding_window=False, sliding_window=8).windows == none
    mixed = {"use_sliding_window": True, "sliding_window": 8, "layer_types": MIXED}
    wanted = tuple(8 if kind == "sliding_attention" else None for kind in MIXED)
    for kind in ("qwen2", "qwen3", "smollm3"):
        assert family(kind, **mixed).windows == wanted
    upper = family("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=4)
    assert upper.windows == (None, None, None, None, 8, 8)
    assert family("llama").rotary == (True,) * LAYERS
    marks = [1, 1, 0, 1, 0, 1]
    assert family("smollm3", no_rope_layers=marks).rotary == tuple(bool(m) for m in marks)
    interval = family("smollm3", no_rope_layer_interval=3)
    assert interval.rotary == (True, True, False) * 2


def test_a_head_may_be_wider_than_its_share() -> None:
    found = family("qwen3", head_dim=16)
    assert (found.head_dim, found.heads * found.head_dim) == (16, 64)
    assert family("llama").head_dim == 8
    assert family("llama", head_dim=None).head_dim == 8


BIASES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "llama attention": {"attention_bias": True},
    "llama feed-forward": {"mlp_bias": True},
    "qwen2": {},
    "qwen3": {"attention_bias": True},
    "smollm3": {"attention_bias": True, "mlp_bias": True},
}


@pytest.mark.parametrize("name", BIASES)
def test_biases_count(name: str) -> None:
    source, model = tiny_model(name.split()[0], LAYERS, **BIASES[name])
    biases = [key for key in source.state if key.endswith(".bias")]
    assert biases
    for key in biases:
        # Large ones: what is left out would show.
        source.state[key].add_(torch.linspace(-1, 1, len(source.state[key])))
    executor = load_slice(source, WHOLE, "fp32", lambda _: None)
    assert isinstance(executor._engine, LeanEngine)
    assert set(biases) <= set(source.reads)
    ids = torch.tensor([[3, 1, 4]])
    with torch.inference_mode():
        wanted = model(input_ids=ids, use_cache=False).logits[0, -1]
    found = EngineChain([executor]).logits([3, 1, 4])
    assert float((found - wanted).abs().max()) <= 1e-4 * float(wanted.abs().max())
