"""What was checked against the library once need not be checked by the next process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch

from diffuse_core import wiring
from diffuse_core.adapters.executor import blueprints as kept
from diffuse_core.adapters.executor import lean_choice, self_test
from diffuse_core.adapters.executor.blueprints import Blueprints
from diffuse_core.adapters.executor.lean import forms
from diffuse_core.adapters.executor.lean_choice import blueprint_of
from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.adapters.file_storage import FileStorage
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import ModelUnusable, UsageError
from tests.adapters.executor.cases import CASES
from tests.adapters.executor.lean.models import FAMILY_CASES, LAYERS
from tests.adapters.executor.parity import PROMPT, EngineChain, generated
from tests.adapters.executor.tiny import tiny_model

ROOT = Path(__file__).parents[3]
WHOLE = Slice(0, LAYERS)


@pytest.fixture
def there(tmp_path: Path) -> Blueprints:
    return Blueprints(FileStorage(tmp_path))


class Installed(NamedTuple):
    version: str
    record: str | None

    def read_text(self, name: str) -> str | None:
        assert name == "RECORD"
        return self.record


def file_in(place: Path) -> Path:
    (found,) = place.iterdir()
    return found


def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_choice, "blueprint_of", lambda _: pytest.fail("made anew"))


@pytest.mark.parametrize(("kind", "case"), FAMILY_CASES)
def test_what_is_found_is_what_was_kept(there: Blueprints, kind: str, case: str) -> None:
    config = tiny_model(kind, LAYERS, **CASES[kind][case])[0].config()
    made = blueprint_of(config)
    assert made is not None
    assert there.find(config) is None
    there.keep(config, made)
    assert there.find(config) == made
    assert there.find({**config, "rms_norm_eps": 0.125}) is None


@pytest.mark.parametrize(
    ("kind", "case"), [("llama", "yarn"), ("qwen2", "upper window"), ("smollm3", "mixed")]
)
def test_a_kept_blueprint_computes_what_the_library_says(
    there: Blueprints, monkeypatch: pytest.MonkeyPatch, kind: str, case: str
) -> None:
    source, model = tiny_model(kind, LAYERS, **CASES[kind][case])
    first = load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    no_library(monkeypatch)
    again = load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    made, found = (EngineChain([executor]).logits(PROMPT) for executor in (first, again))
    assert torch.equal(made, found)
    with torch.inference_mode():
        wanted = model(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0, -1]
    assert float((found - wanted).abs().max()) <= 1e-4 * float(wanted.abs().max())


def test_slices_of_kept_blueprints_say_what_the_whole_says(
    there: Blueprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, model = tiny_model("llama", LAYERS)
    load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    no_library(monkeypatch)
    chain = EngineChain(
        [
            load_slice(source, part, "fp32", lambda _: None, blueprints=there)
            for part in (Slice(0, 1), Slice(1, 3), Slice(3, LAYERS))
        ]
    )
    drawn = [int(chain.logits(PROMPT).argmax())]
    while len(drawn) < 8:
        drawn.append(int(chain.logits(drawn[-1:]).argmax()))
    assert drawn == generated(model, PROMPT, 8)


def test_what_is_refused_stays_refused(there: Blueprints, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = tiny_model("llama", LAYERS)
    load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    no_library(monkeypatch)

    def load(part: Slice = WHOLE, contract: str = "fp32", device: str = "cpu") -> None:
        load_slice(source, part, contract, lambda _: None, device=device, blueprints=there)

    load()
    with pytest.raises(UsageError, match="6 layers"):
        load(Slice(2, LAYERS + 1))
    with pytest.raises(UsageError, match="on the CPU only"):
        load(contract="int4", device="cuda")
    name = "model.layers.1.mlp.up_proj.weight"
    right = source.state[name]
    source.state[name] = right[:-1]
    with pytest.raises(ModelUnusable, match=r"up_proj"):
        load()
    source.state[name] = right
    source.state["model.layers.1.mlp.strange.weight"] = right
    with pytest.raises(ModelUnusable, match="does not know"):
        load()


def test_an_engine_that_is_wrong_leaves_nothing(
    there: Blueprints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = tiny_model("llama", LAYERS)
    monkeypatch.setattr(self_test, "_proven", set())
    monkeypatch.setattr(forms, "interleaved", lambda rows, _: rows)
    with pytest.raises(ModelUnusable, match="not proven"):
        load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    assert not list(tmp_path.iterdir())


def test_other_families_have_none(there: Blueprints, tmp_path: Path) -> None:
    source, _ = tiny_model("gpt2", LAYERS)
    assert blueprint_of(source.config()) is None
    load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def config(there: Blueprints) -> dict[str, object]:
    """Of a model whose blueprint is kept."""
    config = tiny_model("llama", LAYERS)[0].config()
    made = blueprint_of(config)
    assert made is not None
    there.keep(config, made)
    assert there.find(config) == made
    return config


@pytest.mark.parametrize(
    ("place", "name", "other"),
    [
        (kept, "CODE", b"another"),
        (kept, "CODE", None),
        (torch.backends.cpu, "get_cpu_capability", lambda: "ABACUS"),
    ],
)
def test_other_code_and_other_cpus_prove_for_themselves(
    there: Blueprints,
    config: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
    other: object,
) -> None:
    monkeypatch.setattr(place, name, other)
    assert there.find(config) is None


def test_all_code_that_checks_and_is_checked_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept._code() == kept.CODE is not None
    seen = {kept.CODE}

    def another() -> bool:
        """Whether it is code that was not seen yet."""
        code = kept._code()
        return code is not None and code not in seen and not seen.add(code)

    with monkeypatch.context() as other:
        other.setattr(torch, "__version__", "1.2.3")
        assert another()
    for name in ("transformers", "diffuse-tui"):
        with monkeypatch.context() as other:
            told = {name: Installed("9.9", None)}
            other.setattr(kept, "distribution", lambda n, t=told: t.get(n) or distribution(n))
            assert another()
            told[name] = Installed("9.9", "files")
            assert another()
    package = tmp_path / "package"
    (package / "lean").mkdir(parents=True)
    monkeypatch.setattr(kept, "__file__", str(package / "blueprints.py"))
    assert kept._code() is None
    engine = package / "lean" / "engine.py"
    engine.write_text("1")
    assert another()
    before = engine.stat()
    engine.write_text("2")
    os.utime(engine, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert another()
    engine.rename(package / "lean" / "layer.py")
    assert another()
    # What an editor leaves behind.
    (package / ".#engine.py").symlink_to("nobody@nowhere")
    assert kept._code() in seen


def test_where_the_code_cannot_be_told_nothing_is_kept(
    there: Blueprints,
    config: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = there.find(config)
    assert made is not None

    def unknown(name: str) -> Installed:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(kept, "distribution", unknown)
    assert kept._code() is None
    # It was told when this code was loaded, and is another, or none, on the disk now.
    there.keep({**config, "vocab_size": 17}, made)
    monkeypatch.setattr(kept, "CODE", None)
    there.keep({**config, "vocab_size": 18}, made)
    assert len(list(tmp_path.iterdir())) == 1


def test_it_is_of_one_model(there: Blueprints, config: dict[str, object], tmp_path: Path) -> None:
    other = {**config, "vocab_size": 17}
    file_in(tmp_path).rename(tmp_path / kept._name(other))
    assert there.find(other) is None


def test_damage_is_found(there: Blueprints, config: dict[str, object], tmp_path: Path) -> None:
    file = file_in(tmp_path)
    whole = file.read_bytes()
    for at in range(0, len(whole), 37):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert there.find(config) is None, at
    for cut in (b"", whole[:10], whole[:-1], whole[64:], whole + b" ", b"\n" * 100):
        file.write_bytes(cut)
        assert there.find(config) is None
    file.write_bytes(whole)
    assert there.find(config) is not None


@pytest.mark.parametrize(
    "changes",
    [{"context": "many"}, {"more": 1}, {"shapes": {"a": [1.5]}}, {"frequencies": [None]}, None],
)
def test_what_has_another_form_is_passed_over(
    there: Blueprints, config: dict[str, object], tmp_path: Path, changes: dict[str, object] | None
) -> None:
    """Sealed as it should be, by code that calls its fields otherwise."""
    file = file_in(tmp_path)
    fields = json.loads(file.read_bytes().partition(b"\n")[2])
    body = msgspec.json.encode(fields | changes) if changes else b"{"
    file.write_bytes(kept._seal(config, kept.CODE, body) + b"\n" + body)
    assert there.find(config) is None


def test_without_a_place_to_keep_it_all_goes_on(tmp_path: Path) -> None:
    """The cache is a file; nothing can be read from it or written to it."""
    (tmp_path / "cache").write_text("no directory")
    there = Blueprints(FileStorage(tmp_path / "cache"))
    source, model = tiny_model("llama", LAYERS)
    for _ in range(2):
        executor = load_slice(source, WHOLE, "fp32", lambda _: None, blueprints=there)
    drawn = int(EngineChain([executor]).logits(PROMPT).argmax())
    assert [drawn] == generated(model, PROMPT, 1)


def test_settings_that_broke_meanwhile_stop_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Path:
        raise UsageError("config.toml is no TOML")

    monkeypatch.setattr(wiring, "cache_dir", broken)
    source, model = tiny_model("llama", LAYERS)
    executor = wiring.open_slice(source, WHOLE, "fp32", lambda _: None, device="cpu")
    drawn = int(EngineChain([executor]).logits(PROMPT).argmax())
    assert [drawn] == generated(model, PROMPT, 1)


FRESH = """
import hashlib, json, sys
from pathlib import Path
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.domain.slices import Slice
from diffuse_core.model_ports import StageStep
from diffuse_core.wiring import open_slice

part = Slice(0, 2)
executor = open_slice(GgufSource(Path(sys.argv[1])), part, "int4", lambda _: None, device="cpu")
executor.open(b"s" * 16, part, 8)
step = StageStep(session=b"s" * 16, part=part, position=0, tokens=(504, 3575, 282))
(result,) = executor.run([step])
rows = hashlib.sha256(bytes(result.hidden.data)).hexdigest()
there = [name for name in ("transformers", "torch._dynamo") if name in sys.modules]
print(json.dumps([rows, there]))
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_next_process_does_without_the_library(tmp_path: Path, demo_gguf: Path) -> None:
    def fresh() -> tuple[str, list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", FRESH, str(demo_gguf)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "DIFFUSE_CACHE_DIR": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        rows, there = json.loads(done.stdout)
        return rows, there

    first, there = fresh()
    assert there == ["transformers", "torch._dynamo"]
    assert fresh() == (first, [])
