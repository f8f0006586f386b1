"""`diffuse verify` on files: its report, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

from diffuse_core.adapters.executor import script
from diffuse_core.adapters.hardware import SystemHardware
from diffuse_core.cli import run
from tests.adapters.executor.tiny import tiny_model
from tests.services.tiny_model import LAYERS, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = ("--threads", "1", "--tokens", "4")


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No GPU is looked for; threads and logging are as before afterwards."""
    monkeypatch.setattr(SystemHardware, "accelerator_likely", lambda _: False)
    before, handlers = torch.get_num_threads(), logging.getLogger().handlers[:]
    yield
    torch.set_num_threads(before)
    logging.getLogger().handlers[:] = handlers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama with a tokenizer."""
    return make_tiny_model(tmp_path_factory.mktemp("verify") / "tiny").path


@pytest.fixture
def wordless(tmp_path: Path) -> Path:
    """A tiny gemma2 without a tokenizer."""
    tiny_model("gemma2", 3)[1].save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_report_of_a_model_that_is_equal(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", str(model), "--dtype", "fp32", "--json", *QUICK]) == 0
    report = told(capsys)
    assert report["equal"] is report["same_bits"] is report["whole"] is True
    assert (report["contract"], report["device"], report["threads"]) == ("fp32", "cpu", 1)
    two = [
        outcome["parts"]
        for outcome in report["outcomes"]
        if len(outcome["parts"]) == 2 and not outcome["loaded"]
    ]
    assert two == [[[0, cut], [cut, LAYERS]] for cut in range(1, LAYERS)]
    # Small, and in fp32: the library is asked too.
    assert report["outcomes"][-1]["way"] == "transformers' generate"
    assert [said["prompt"]["name"] for said in report["said"]] == [
        "a sentence", "code", "one token",
    ]  # fmt: skip
    assert all(len(said["tokens"]) == 4 for said in report["said"])
    assert torch.get_num_threads() == 1


@pytest.mark.slow
def test_the_table_and_the_progress_of_people(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", str(model), "--dtype", "bf16", *QUICK]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert "10 layers, bf16 on cpu, 1 thread" in lines[0]
    rows = [" ".join(line.split()) for line in lines]
    assert any(row.startswith("cut 0:5 5:10, loaded apart same bits 0 ") for row in rows)
    assert lines[-1].startswith("equal: ")
    assert "generate" not in shown.out
    assert "loading layers 0:10\n" in shown.err
    assert shown.err.count("loading layers 0:10\n") == 1


@pytest.mark.slow
def test_a_model_that_differs_ends_with_3_and_names_the_ways(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = script.from_wire
    monkeypatch.setattr(script, "from_wire", lambda tensor: honest(tensor) * -3)
    assert run(["verify", str(model), "--dtype", "fp32", *QUICK]) == 3
    shown = capsys.readouterr()
    assert "cut 0:1 1:10" in shown.err.splitlines()[-1]
    assert "DIFFERENT" in shown.out


@pytest.mark.slow
def test_a_model_without_words_and_of_another_family(
    wordless: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", str(wordless), *QUICK]
    assert run([*command, "--dtype", "fp32", "--no-against-library", "--json"]) == 0
    report = told(capsys)
    assert report["equal"] is True
    assert report["said"][0]["prompt"]["name"] == "scattered ids"
    assert run([*command, "--dtype", "int8"]) == 2
    assert "gemma2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fast", "contract"), [pytest.param(False, "fp32", marks=pytest.mark.slow), (True, "bf16")]
)
def test_auto_is_what_suits_the_processor_and_the_family(
    wordless: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fast: bool,
    contract: str,
) -> None:
    """The modules of this family are the library's."""
    monkeypatch.setattr(SystemHardware, "fast_bf16", lambda _: fast)
    assert run(["verify", str(wordless), "--no-against-library", "--json", *QUICK]) == 0
    assert told(capsys)["contract"] == contract


def test_a_device_that_is_not_here_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["verify", str(model)], ["plan", "--model", str(model)]):
        assert run([*command, "--device", "cuda"]) == 2
        assert "only cpu;" in capsys.readouterr().err


def test_a_plan_is_made_in_the_contract_that_suits_or_is_asked_for(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def weights(*more: str) -> int:
        # Of a network of its own: whoever listens on this machine is not asked.
        own = ["--network", "nobody", "--state-dir", str(tmp_path), "--json"]
        assert run(["plan", "--model", str(model), "--memory", "1GiB", *own, *more]) == 0
        return int(told(capsys)["bytes"]["weights"])

    sizes = {dtype: weights("--dtype", dtype) for dtype in ("fp32", "bf16", "int8", "int4")}
    assert sizes["fp32"] == 2 * sizes["bf16"] > sizes["bf16"] > sizes["int8"] > sizes["int4"]
    assert weights() == sizes["bf16"]
