"""Loading takes what is held and little more, and reads each tensor of the slice once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save_file

from diffuse_core.adapters.executor.lean.engine import LeanEngine
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable
from tests.adapters.executor.lean.models import CONTRACTS, LAYERS, MODELS, family_model
from tests.adapters.executor.tiny import tiny_model

if TYPE_CHECKING:
    from diffuse_core.domain.shapes import Contract

MIB = 2**20
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("name", MODELS)
def test_each_tensor_of_the_slice_is_read_once(name: str, contract: Contract) -> None:
    source, _ = family_model(name)
    tied = "lm_head.weight" not in source.state
    fractions: list[float] = []
    load_slice(source, Slice(0, LAYERS), contract, fractions.append)
    # A tied head is laid out apart from the table, so that the embedding is read twice.
    again = ["model.embed_tokens.weight"] if tied else []
    assert sorted(source.reads) == sorted([*source.state, *again])
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    middle, _ = family_model(name)
    load_slice(middle, Slice(2, 4), contract, lambda _: None)
    own = {key for key in middle.state if key.startswith(("model.layers.2.", "model.layers.3."))}
    assert middle.fetched == own
    assert sorted(middle.reads) == sorted(own)


class CancelledError(Exception):
    pass


def test_progress_may_cancel_a_load() -> None:
    source, _ = family_model("llama")

    def cancel(fraction: float) -> None:
        if fraction > 0.7:
            raise CancelledError

    with pytest.raises(CancelledError):
        load_slice(source, Slice(0, LAYERS), "int4", cancel)
    assert 0 < len(set(source.reads)) < len(source.state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("model.layers.1.mlp.up_proj.weight"), "no tensor .*up_proj"),
        (
            lambda state: state.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(3, 32)}),
            r"up_proj.weight has shape \(3, 32\), the model's settings say",
        ),
        (
            lambda state: state.update({"model.layers.1.mlp.up_proj.bias": torch.zeros(48)}),
            "up_proj.bias",
        ),
        (lambda state: state.pop("model.norm.weight"), r"no tensor model\.norm"),
    ],
)
def test_nothing_is_read_of_files_that_contradict(change: object, message: str) -> None:
    source, _ = tiny_model("llama", LAYERS)
    change(source.state)  # type: ignore[operator]
    with pytest.raises(ModelUnusable, match=message):
        load_slice(source, Slice(0, LAYERS), "int4", lambda _: None)
    assert not source.reads


def test_bytes_held_are_counted_by_what_is_held() -> None:
    source, _ = family_model("qwen3")
    executor = load_slice(source, Slice(0, LAYERS), "bf16", lambda _: None)
    assert isinstance(executor._engine, LeanEngine)
    assert executor.weight_bytes == 2 * sum(tensor.numel() for tensor in source.state.values())


@pytest.fixture(scope="module")
def big_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in bf16, 280 MB."""
    place = tmp_path_factory.mktemp("big")
    hidden, wide, kv = 1024, 4096, 512
    shapes = {"model.embed_tokens": (32000, hidden), "lm_head": (32000, hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj": (hidden, hidden),
            f"{at}.self_attn.k_proj": (kv, hidden),
            f"{at}.self_attn.v_proj": (kv, hidden),
            f"{at}.self_attn.o_proj": (hidden, hidden),
            f"{at}.mlp.gate_proj": (wide, hidden),
            f"{at}.mlp.up_proj": (wide, hidden),
            f"{at}.mlp.down_proj": (hidden, wide),
            f"{at}.input_layernorm": (hidden,),
            f"{at}.post_attention_layernorm": (hidden,),
        }
    shapes["model.norm"] = (hidden,)
    own = torch.Generator().manual_seed(1)
    tensors = {
        f"{name}.weight": torch.randn(shape, generator=own).mul_(0.03).to(torch.bfloat16)
        for name, shape in shapes.items()
    }
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    (place / "config.json").write_text(json.dumps(CONFIG))
    return place


MEMORY_SCRIPT = """
import sys
from pathlib import Path
import psutil
from diffuse_core.adapters.executor.loader import load_slice, set_threads
from diffuse_core.adapters.executor.lean_choice import small_lean_engine
from diffuse_core.adapters.executor.self_test import prove
from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.domain.slices import Slice

set_threads(1)
source = DirectorySource(Path(sys.argv[1]))
# What a first load imports and the kernels' own code: the same for any model.
prove(source.config(), small_lean_engine)
process = psutil.Process()
Path("/proc/self/clear_refs").write_text("5")  # The peak starts anew.
before = process.memory_info().rss
executor = load_slice(source, Slice(0, 5), sys.argv[2], lambda _: None)
# Not getrusage: that one counts what the process was started from too.
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(peak - before, process.memory_info().rss - before, executor.weight_bytes,
      source.shape(sys.argv[2]).weight_bytes(Slice(0, 5)))
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's counters")
@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_peak_of_loading_is_near_what_is_held(big_model: Path, contract: Contract) -> None:
    command = [sys.executable, "-c", MEMORY_SCRIPT, str(big_model), contract]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    peak, held, counted, estimated = (int(word) for word in done.stdout.split())
    print(  # noqa: T201 - shown with -s
        f"\n{contract}: peak {peak / MIB:.1f}, held {held / MIB:.1f}, counted "
        f"{counted / MIB:.1f}, estimated {estimated / MIB:.1f} MiB; peak {peak / counted:.3f}"
    )
    assert counted == pytest.approx(estimated, rel=0.01)
    assert held == pytest.approx(estimated, rel=0.1)
    assert peak <= 1.15 * counted
