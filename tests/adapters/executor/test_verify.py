"""`verify` finds a model equal in slices that is, and one that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.executor import script as script_module
from diffuse_core.adapters.executor import verify as verify_module
from diffuse_core.adapters.executor.library_model import LibraryModel
from diffuse_core.adapters.executor.script import script, uneven
from diffuse_core.adapters.executor.verify import Verification
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError
from diffuse_core.services.devices import Device
from diffuse_core.services.verification import Prompt, cuts, loaded_cuts
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from diffuse_core.adapters.executor.engine import Engine
    from diffuse_core.services.verification import Report

LAYERS = 4
COUNT = 5
PROMPTS = (Prompt("some", (3, 14, 15, 92, 65, 35, 89, 79, 32)), Prompt("one", (7,)))
PLENTY = 2**30
CPU = Device("cpu", threads=1, free=PLENTY)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., DirectorySource]:
    """A tiny model as the files of a checkpoint."""

    def make(kind: str, **settings: object) -> DirectorySource:
        tiny_model(kind, LAYERS, **settings)[1].save_pretrained(tmp_path / kind)
        return DirectorySource(tmp_path / kind)

    return make


def verified(
    source: DirectorySource,
    contract: str = "fp32",
    capacity: int = PLENTY,
    *,
    library: bool = False,
    device: Device = CPU,
    told: list | None = None,
) -> Report:
    tell = (told if told is not None else []).append
    work = Verification(
        source, contract, device, PROMPTS, COUNT, lambda what, done: tell((what, done))
    )
    return work.run(capacity, against_library=library)


@pytest.mark.parametrize(
    ("kind", "contract"),
    [
        ("llama", "fp32"),
        pytest.param("llama", "bf16", marks=pytest.mark.slow),
        ("llama", "int8"),
        pytest.param("gemma2", "fp32", marks=pytest.mark.slow),
        pytest.param("gpt2", "fp32", marks=pytest.mark.slow),
    ],
)
def test_every_cut_of_a_good_model_says_what_the_whole_says(
    saved: Callable, kind: str, contract: str
) -> None:
    report = verified(saved(kind), contract, library=contract == "fp32")
    assert report.equal
    assert report.same_bits
    assert report.whole
    tried = [outcome.parts for outcome in report.outcomes if outcome.parts]
    assert tried == [(Slice(0, LAYERS),), *cuts(LAYERS), *loaded_cuts(LAYERS)]
    ways = [outcome.way for outcome in report.outcomes]
    assert ("transformers' generate" in ways) == (contract == "fp32")
    assert [len(said.tokens) for said in report.said] == [COUNT, COUNT]


@pytest.mark.slow
def test_what_the_whole_says_is_what_the_library_says(saved: Callable) -> None:
    source = saved("qwen3", tie_word_embeddings=True)
    report = verified(source)
    library = LibraryModel(source, lambda _: None, "cpu")
    for said in report.said:
        assert list(said.tokens) == library.generate(said.prompt.tokens, COUNT)


@pytest.mark.slow
def test_progress_goes_from_nothing_to_all(saved: Callable) -> None:
    told: list[tuple[str, float]] = []
    verified(saved("llama"), library=True, told=told)
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert fractions[0] < 0.2 < 0.9 < fractions[-1] <= 1.0
    whats = [what for what, _ in told]
    assert whats[0] == "loading layers 0:4"
    assert "cut 0:2 2:4, loaded apart" in whats


@pytest.mark.slow
def test_a_hop_that_changes_numbers_is_found(
    saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = script_module.from_wire
    monkeypatch.setattr(script_module, "from_wire", lambda tensor: honest(tensor) * 1.5)
    report = verified(saved("llama"))
    whole, *others = report.outcomes
    assert whole.same_bits
    assert not any(outcome.same_bits for outcome in others)
    assert all(outcome.difference > 0 for outcome in others)
    assert not report.equal


@pytest.mark.slow
def test_a_change_of_the_last_bits_leaves_the_tokens_and_is_told(
    saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = script_module.from_wire
    monkeypatch.setattr(script_module, "from_wire", lambda tensor: honest(tensor) * 1.000001)
    report = verified(saved("llama"))
    assert report.equal
    assert not report.same_bits
    assert 0 < max(outcome.difference for outcome in report.outcomes) < 0.01


@pytest.mark.slow
def test_slices_that_are_loaded_wrong_are_found(
    saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = verify_module.load_engine

    def spoiled(source: object, part: Slice, *rest: object, **more: object) -> Engine:
        engine = honest(source, part, *rest, **more)
        if part.start == 2:
            engine._layers.reverse()
        return engine

    monkeypatch.setattr(verify_module, "load_engine", spoiled)
    report = verified(saved("llama"))
    wrong = [outcome.parts for outcome in report.outcomes if not outcome.same_bits]
    assert wrong == loaded_cuts(LAYERS)
    assert all(outcome.loaded for outcome in report.outcomes if not outcome.same_bits)


@pytest.mark.slow
def test_company_that_changes_what_is_said_is_found(
    saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved("llama")
    honest = script_module._pass

    def crowded(engine: Engine, batch: list, *, together: bool) -> list[torch.Tensor]:
        return [row * len(batch) for row in honest(engine, batch, together=together)]

    monkeypatch.setattr(script_module, "_pass", crowded)
    report = verified(source)
    assert not report.outcomes[0].same_bits
    assert report.outcomes[0].way == "whole, prompts one by one"


@pytest.mark.slow
def test_another_answer_than_the_library_s_is_found(
    saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LibraryModel, "generate", lambda *_: [0] * COUNT)
    report = verified(saved("llama"), library=True)
    assert [outcome.way for outcome in report.outcomes if not outcome.same_tokens] == [
        "transformers' generate"
    ]


@pytest.mark.parametrize("kind", ["llama", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_a_model_that_does_not_fit_is_verified_in_windows(
    saved: Callable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source = saved(kind)
    sizes = source.shape("fp32")
    loads: list[Slice] = []
    honest = verify_module.load_engine

    def watched(source: object, part: Slice, *rest: object, **more: object) -> Engine:
        loads.append(part)
        return honest(source, part, *rest, **more)

    monkeypatch.setattr(verify_module, "load_engine", watched)
    report = verified(source, capacity=sizes.weight_bytes(Slice(LAYERS - 2, LAYERS)))
    assert report.equal
    assert report.same_bits
    assert not report.whole
    assert len(loads) > 1
    assert max(len(part) for part in loads) < LAYERS
    assert {outcome.parts[0].end for outcome in report.outcomes} == set(range(1, LAYERS))
    assert report.said == ()
    with pytest.raises(UsageError, match="does not fit whole"):
        verified(source, capacity=sizes.weight_bytes(Slice(0, LAYERS)) - 1, library=True)


@pytest.mark.slow
def test_windows_find_what_differs(saved: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved("llama")
    capacity = source.shape("fp32").weight_bytes(Slice(LAYERS - 2, LAYERS))
    honest = script_module.Chain.run

    def spoiled(self: script_module.Chain, *given: object) -> list[torch.Tensor]:
        outputs = honest(self, *given)
        return [row * 1.5 for row in outputs] if len(self._stages) > 1 else outputs

    monkeypatch.setattr(script_module.Chain, "run", spoiled)
    report = verified(source, capacity=capacity)
    assert not any(outcome.same_bits for outcome in report.outcomes)
    assert not report.equal


@pytest.mark.parametrize("layers", [4, 2])
def test_numbers_that_are_not_finite_are_refused(
    saved: Callable, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    source = saved("llama")
    capacity = source.shape("fp32").weight_bytes(Slice(LAYERS - layers, LAYERS))
    honest = script_module._pass
    monkeypatch.setattr(
        script_module,
        "_pass",
        lambda *given, **more: [row * float("nan") for row in honest(*given, **more)],
    )
    with pytest.raises(ModelUnusable, match="not finite"):
        verified(source, capacity=capacity)


def test_prompts_come_in_uneven_chunks() -> None:
    assert uneven(range(40)) == [tuple(range(25)), (25,), tuple(range(26, 40))]
    assert uneven([5]) == [(5,)]
    assert uneven([5, 6]) == [(5,), (6,)]


def test_the_script_takes_back_and_runs_again() -> None:
    work = script([(1, 2, 3), (9,)], 6)
    step = next(work)
    lengths, fed = [0, 0], [[], []]
    seen = []
    drawn = 100
    said = None
    while said is None:
        seen.append(step)
        for session, tokens in step.rows:
            lengths[session] -= step.back
            del fed[session][lengths[session] :]
            fed[session] += tokens
            lengths[session] += len(tokens)
        drawn += 1
        try:
            step = work.send([drawn + 100 * session for session, _ in step.rows])
        except StopIteration as ended:
            said = ended.value
    assert [len(own) for own in said] == [6, 6]
    assert fed == [[1, 2, 3, *said[0][:-1]], [9, *said[1][:-1]]]
    assert [step.back for step in seen if step.back] == [2]
    assert [step.together for step in seen] == [False, False, False, False, *[True] * 5]


@pytest.mark.gpu
@pytest.mark.timeout(120)
@pytest.mark.parametrize("contract", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_gpu_says_the_same_in_slices(saved: Callable, kind: str, contract: str) -> None:
    from diffuse_core.adapters.executor.accelerators import accelerators

    (gpu, free), *_ = accelerators().items()
    assert free > 0
    report = verified(saved(kind), contract, device=Device(gpu, 1, free))
    assert report.equal


@pytest.mark.slow
def test_one_prompt_alone_needs_no_comparison_with_itself(saved: Callable) -> None:
    source = saved("llama")
    prompts = (Prompt("one", (1, 2, 3)),)
    report = Verification(source, "fp32", CPU, prompts, 1, lambda *_: None).run(
        PLENTY, against_library=False
    )
    assert len(report.outcomes) == len(cuts(LAYERS)) + len(loaded_cuts(LAYERS))
