"""Doctor and files: keys, models that are damaged, what downloads left."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from diffuse_core.adapters.file_storage import load_identity
from diffuse_core.cli import cli, run
from diffuse_core.cli.doctor import command, here, models, settings
from diffuse_core.errors import UsageError
from diffuse_core.own_paths import user_directory
from diffuse_core.settings import NODE_FILE, PUBLIC
from tests.adapters.models.hub_server import hub_server
from tests.cli.test_doctor_machine import told
from tests.cli.test_doctor_network import MODEL, view

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.view import NetworkView


@pytest.fixture
def state(tmp_path: Path) -> Path:
    load_identity(tmp_path, "identity.key")
    load_identity(tmp_path, "owner.key")
    return tmp_path


def test_keys(state: Path, tmp_path: Path) -> None:
    told(here.judge_keys(state), "ok", "identity.key and owner.key")
    told(here.judge_keys(tmp_path / "none"), "ok", "none yet")
    (state / "owner.key").write_text("zz")
    told(here.judge_keys(state), "problem", "damaged")
    (state / "owner.key").write_bytes((state / "identity.key").read_bytes())
    told(here.judge_keys(state), "problem", "the same key")


@pytest.mark.skipif(os.name != "posix", reason="no modes")
def test_keys_that_others_can_read(state: Path) -> None:
    (state / "identity.key").chmod(0o640)
    told(here.judge_keys(state), "problem", "chmod 600")


def test_the_api_key(tmp_path: Path) -> None:
    assert here.judge_api_key(tmp_path) is None
    key = tmp_path / "api.key"
    key.write_text("sk-secret-secret-secret")
    key.chmod(0o600)
    finding = here.judge_api_key(tmp_path)
    assert finding is not None
    told(finding, "ok")
    key.chmod(0o644)
    finding = here.judge_api_key(tmp_path)
    assert finding is not None
    told(finding, "problem", "chmod 600")
    assert "sk-secret" not in finding.found + finding.step


async def test_a_node_that_was_killed_left_its_file(tmp_path: Path) -> None:
    (tmp_path / NODE_FILE).write_text('{"address":"127.0.0.1:1","node":"00","pid":4194304}')
    facts = await here.here_facts(tmp_path, PUBLIC)
    assert facts.stale
    assert facts.pid is None


def test_a_model_that_is_no_use(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    told(models.judge_model(str(bad), tmp_path), "problem")
    told(models.judge_model(str(tmp_path), tmp_path), "problem", "bad.gguf")
    assert models.fingerprints(str(bad), tmp_path) is None


def test_the_demo_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(models.judge_demo(tmp_path, asked=True), "note", "diffuse demo")
    from diffuse_core.adapters.models.demo import SMOLLM2

    path = tmp_path / "models" / SMOLLM2.file_name
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    told(models.judge_demo(tmp_path, asked=False), "problem", f"rm {path}*")

    class Full:
        free = 0

    path.unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Full)
    told(models.judge_demo(tmp_path, asked=True), "problem", "make room")


def test_what_downloads_left(tmp_path: Path) -> None:
    told(models.judge_left_over(*models.left_over(tmp_path)), "ok", "none")
    (tmp_path / "a.whl.part").write_bytes(b"123")
    told(models.judge_left_over(*models.left_over(tmp_path)), "note", "1 unfinished")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "w.safetensors.parts").write_text("junk")
    told(models.judge_left_over(*models.left_over(tmp_path)), "warning", "damaged")


def test_other_weights_under_the_same_name_are_told() -> None:
    network: NetworkView = view(MODEL)
    assert models.judge_same(("other", {}), network) is None
    same = models.judge_same(("m", {"bf16": MODEL.fingerprint}), network)
    assert same is not None
    told(same, "ok", "the same")
    other = models.judge_same(("m", {"fp32": MODEL.fingerprint, "bf16": "0"}), network)
    assert other is not None
    told(other, "warning", "other weights")


def test_a_model_of_the_hub_is_told_apart(tmp_path: Path) -> None:
    assert models.on_hub("demo") is None
    assert models.on_hub(str(tmp_path)) is None
    assert str(models.on_hub("org/name")) == "org/name"


@pytest.mark.parametrize(("free", "state"), [(2**40, "ok"), (10, "warning")])
def test_a_model_of_the_hub_and_the_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    class Disk:
        pass

    Disk.free = free
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Disk)
    index = {"config.json": b"{}", "model.safetensors.index.json": b"{}"}
    shards = {f"model-0000{n}-of-00003.safetensors": bytes(2**20) for n in (1, 2, 3)}
    with hub_server() as hub:
        hub.add("org/split", {**index, **shards})
        hub.add("org/whole", {"config.json": b"{}", "model.safetensors": bytes(2**20)})
        for name, size in (("org/split", "about 3.0 MiB"), ("org/whole", "about 1.0 MiB")):
            found = models.judge_hub(models.on_hub(name), tmp_path / "none", hub.endpoint)
            told(found, state, size)
        assert ("--max-layers" in found.step) == (state == "warning")


def test_a_model_of_the_hub_that_is_no_use(tmp_path: Path) -> None:
    with hub_server() as hub:
        hub.add("org/pickled", {"config.json": b"{}", "pytorch_model.bin": b"x"})
        found = models.judge_hub(models.on_hub("org/pickled"), tmp_path, hub.endpoint)
        told(found, "problem", "pickles")
        told(models.judge_hub(models.on_hub("org/no"), tmp_path, hub.endpoint), "problem")


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("[[", "no TOML"),
        ("nonsense = 1", "nonsense"),
        ("cache-dir = 3", "cache-dir"),
        ('bootstrap = "a b:99999999"', "bootstrap"),
        ('[doctor]\nserve-port = "x"', "serve-port"),
    ],
)
def test_settings_that_cannot_be_used_do_not_end_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, wrong: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(written)
    file.chmod(0o600)
    monkeypatch.setenv("DIFFUSE_CONFIG", str(file))
    monkeypatch.delenv("DIFFUSE_CACHE_DIR", raising=False)
    seen: list[dict[str, Any]] = []

    def asked(given: dict[str, Any]) -> None:
        seen.append(given)
        raise UsageError("enough")

    monkeypatch.setattr(command, "_asked", asked)
    assert run(["doctor"]) == 2
    assert seen[0]["bootstrap"] == ()
    assert seen[0]["serve_port"] is None
    told(settings.judge_settings(*settings.settings_facts(cli)), "problem", wrong)
    assert settings.cache_here() == user_directory("cache", "")
    # Another command takes nothing that is wrong.
    assert run(["models", "--json"]) == 2
