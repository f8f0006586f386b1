"""The lean engine against the general one and the library, in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from diffuse_core.adapters.executor import lean_choice, self_test
from diffuse_core.adapters.executor.lean import family as family_module
from diffuse_core.adapters.executor.lean import forms, layer, loader
from diffuse_core.adapters.executor.lean.attention import Seat
from diffuse_core.adapters.executor.lean.norm import Norm
from diffuse_core.adapters.executor.lean.rotary import Rotary
from diffuse_core.adapters.executor.lean_choice import small_lean_engine
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable
from tests.adapters.executor.cases import CASES
from tests.adapters.executor.lean.models import FAMILY_CASES, LAYERS, some_soon
from tests.adapters.executor.parity import PROMPT, EngineChain, generated
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 40
TOLERANCE = 1e-4
"""Of the largest logit."""
WHOLE = Slice(0, LAYERS)


CASES_SOON = {
    ("llama", "biased"),
    ("llama", "yarn"),
    ("mistral", "window"),
    ("qwen2", "upper window"),
    ("qwen3", "plain"),
    ("smollm3", "mixed"),
}
BOTH = some_soon(FAMILY_CASES, CASES_SOON)


@pytest.mark.parametrize(("kind", "case"), BOTH)
def test_both_engines_say_the_same(kind: str, case: str) -> None:
    source, model = tiny_model(kind, LAYERS, **CASES[kind][case])
    chains = [
        EngineChain([load_slice(source, WHOLE, "fp32", lambda _: None, lean=lean)])
        for lean in (True, False)
    ]
    assert type(chains[0].engines[0]) is not type(chains[1].engines[0])
    drawn: list[int] = []
    # Longer than the windows of 8, in chunks that are shorter and longer than one.
    passes = [PROMPT[:3], PROMPT[3:4], PROMPT[4:]]
    while len(drawn) < STEPS:
        lean, general = (chain.logits(passes[0]) for chain in chains)
        error = float((lean - general).abs().max() / general.abs().max())
        assert error <= TOLERANCE, (chains[0].length, error)
        passes = passes[1:]
        if not passes:
            assert int(lean.argmax()) == int(general.argmax())
            drawn.append(int(lean.argmax()))
            passes = [tuple(drawn[-1:])]
    assert drawn == generated(model, PROMPT, STEPS)


@pytest.mark.parametrize(("kind", "case"), BOTH)
def test_every_row_is_the_librarys(kind: str, case: str) -> None:
    """Row by row through decoding, against one pass of the library over all."""
    source, model = tiny_model(kind, LAYERS, **CASES[kind][case])
    chain = EngineChain([load_slice(source, WHOLE, "fp32", lambda _: None)])
    tokens = [*PROMPT, *PROMPT]
    with torch.inference_mode():
        wanted = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    for at, token in enumerate(tokens):
        error = float((chain.logits([token]) - wanted[at]).abs().max() / wanted[at].abs().max())
        assert error <= TOLERANCE, (at, error)


def config_of(kind: str, case: str) -> dict[str, object]:
    return tiny_model(kind, LAYERS, **CASES[kind][case])[0].config()


def other_eps(make: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(config: Any, *, tied: bool) -> Any:
        config.rms_norm_eps = 0.3
        return make(config, tied=tied)

    return wrong


def all_windows(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda config: tuple(w or 8 for w in make(config))


def wrong_mask(make: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Seat, window: int | None, group: int, like: torch.Tensor) -> Any:
        return make(self, None if window is None else window + 1, group, like)

    return wrong


FAULTS: dict[str, tuple[str, str, Any, str, Callable[..., Any]]] = {
    "heads not interleaved": ("llama", "plain", forms, "interleaved", lambda _: lambda r, _: r),
    "another epsilon": ("llama", "plain", lean_choice, "family_of", other_eps),
    "a window in all layers": ("qwen2", "mixed", family_module, "_windows", all_windows),
    "no window": ("mistral", "window", family_module, "_windows", lambda _: lambda _: (None,) * 9),
    "a window of one more": ("mistral", "window", Seat, "mask", wrong_mask),
    "rotary in all layers": (
        "smollm3",
        "plain",
        family_module,
        "_rotary",
        lambda _: lambda _: (True,) * 9,
    ),
    "rotary scale left out": (
        "llama",
        "yarn",
        lean_choice,
        "rotary_of",
        lambda make: lambda *given: Rotary(make(*given).frequencies, 1.0),
    ),
    "norms of heads left out": (
        "qwen3",
        "plain",
        layer.Layer,
        "_normalise",
        lambda _: lambda *_: None,
    ),
    "biases left out": (
        "qwen2",
        "plain",
        forms.Forms,
        "matrix",
        lambda make: lambda self, weights, biases=(): make(self, weights),
    ),
    "norms without weights": (
        "llama",
        "plain",
        loader,
        "Norm",
        lambda _: lambda weight, eps: Norm(torch.ones_like(weight), eps),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_lean_engine_that_is_wrong_is_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, case, place, attribute, fault = FAULTS[name]
    config = config_of(kind, case)
    monkeypatch.setattr(self_test, "_proven", set())
    prove(config, small_lean_engine)
    monkeypatch.setattr(self_test, "_proven", set())
    monkeypatch.setattr(place, attribute, fault(getattr(place, attribute)))
    with pytest.raises(ModelUnusable, match=f"architecture {kind}.*the same text in slices"):
        prove(config, small_lean_engine)


def test_a_model_is_not_read_before_its_engine_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = tiny_model("llama", LAYERS)
    monkeypatch.setattr(self_test, "_proven", set())
    monkeypatch.setattr(forms, "interleaved", lambda rows, _: rows)
    with pytest.raises(ModelUnusable, match="not proven"):
        load_slice(source, WHOLE, "int4", lambda _: None)
    assert not source.fetched
