"""A model on the hub is the model that its files are; what is no model is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from diffuse_core.adapters.models.directory_source import DirectorySource
from diffuse_core.errors import ModelUnknown, ModelUnusable
from tests.adapters.models.hub_model import BIG, FILE, REPO, data_of, layer, silent
from tests.adapters.models.hub_server import COMMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.adapters.models.hub_server import Hub


def test_it_is_the_model_that_its_files_are(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    told: list[float] = []
    source = fetch(progress=told.append)
    local = DirectorySource(hub_directory)
    assert (source.id, source.commit) == (REPO, COMMIT)
    assert source.content == local.content
    assert source.bundle() == local.bundle()
    assert source.config() == local.config()
    assert source.names == local.names
    assert source.shape("bf16") == local.shape("bf16")
    assert told == sorted(told)
    assert told[-1] == 1.0
    source.fetch(source.names, silent)
    for name in local.names:
        assert data_of(source, name) == data_of(local, name), name
    assert source._mirror._partial(FILE).proven


def test_models_in_several_files_are_the_same_model(
    hub: Hub, fetch: Callable, save: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, save(name="several", shard="1MB", **BIG))
    files = [name for name in hub.repos[REPO].files if name.endswith(".safetensors")]
    assert len(files) > 8
    source = fetch()
    local = DirectorySource(hub_directory)
    assert source.content == local.content
    hub.forget()
    names = layer(source, 1)
    source.fetch(names, silent)
    asked = {name for name in files if hub.asked(name)}
    assert 0 < len(asked) < len(files)
    assert all(data_of(source, name) == data_of(local, name) for name in names)


def test_a_revision_is_pinned_to_its_commit(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    repo = hub.add(REPO, hub_directory, revisions=("main", "v1", "refs/pr/1"))
    assert fetch("org/tiny@v1").commit == COMMIT
    assert fetch("org/tiny@refs/pr/1").commit == COMMIT
    source = fetch()
    moved = "d" * 40
    config = json.loads(repo.files["config.json"])
    changed = json.dumps({**config, "rms_norm_eps": 1e-3}).encode()
    hub.add(REPO, {**repo.files, "config.json": changed}, commit=moved)
    hub.forget()
    newer = fetch()
    assert newer.commit == moved
    assert newer.content != source.content
    asked = {s.path.split("/resolve/")[1].split("/")[0] for s in hub.seen if "/resolve/" in s.path}
    assert asked == {moved}
    # What was opened before stays what it was.
    assert source.commit == COMMIT
    assert source.content == DirectorySource(hub_directory).content


def test_a_commit_that_is_here_needs_no_hub(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add(REPO, hub_directory)
    first = fetch(f"{REPO}@{COMMIT}")
    hub.forget()
    again = fetch(f"{REPO}@{COMMIT}")
    assert again.content == first.content
    assert again.bundle()
    assert hub.seen == []


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_without_a_hub_the_last_commit_counts_as_far_as_it_is_here(
    hub: Hub,
    fetch: Callable,
    hub_directory: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub.add(REPO, hub_directory)
    first = fetch()
    first.fetch(layer(first, 1), silent)
    endpoint = hub.endpoint
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        told = "HF_HUB_OFFLINE forbids"
    else:
        endpoint = "http://127.0.0.1:9"
        told = "cannot be fetched from http://127.0.0.1:9 .*check the connection"
    again = fetch(endpoint=endpoint)
    assert again.content == first.content
    assert f"going on with commit {COMMIT}" in caplog.text
    again.fetch(layer(again, 1), silent)
    with pytest.raises(ModelUnknown, match=told):
        again.fetch(layer(again, 2), silent)
    with pytest.raises(ModelUnknown, match=told):
        fetch("org/other", endpoint=endpoint)


def test_the_hub_says_how_a_model_is_called(
    hub: Hub, fetch: Callable, hub_directory: Path
) -> None:
    hub.add("tiny", hub_directory, canonical=REPO)
    assert fetch("tiny").id == REPO


def test_looking_does_not_load_torch(hub: Hub, hub_directory: Path, tmp_path: Path) -> None:
    hub.add(REPO, hub_directory)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from diffuse_core.adapters.models.hub_name import parse_hub_name\n"
        "from diffuse_core.adapters.models.hub_source import open_hub\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "source = open_hub(parse_hub_name('org/tiny'), Path(sys.argv[1]), lambda _: None)\n"
        "source.content, source.bundle()\n"
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        env={**os.environ, "HF_ENDPOINT": hub.endpoint},
    )
    assert done.stdout.strip() == "set()", done.stderr
    assert {seen.authorization for seen in hub.seen if seen.where == "hub"} == {"Bearer hf_secret"}


UNREADABLE = {
    "its weights are pickles": {"config.json": b"{}", "pytorch_model.bin": b"x"},
    r"GGUF files only; download one \(`hf download org/tiny m.gguf`\)": {"m.gguf": b"GGUF"},
    r"no safetensors; it is no": {"README.md": b"hello"},
    r"safetensors, but no config\.json": {"model.safetensors": b"x"},
    r"safetensors, but no model\.safetensors\.index\.json": {
        "config.json": b"{}",
        "a.safetensors": b"x",
        "b.safetensors": b"x",
    },
    r"malformed": {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "../../evil.safetensors"}}',
    },
    "lacks a file": {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}',
    },
    r"^org/tiny of the hub .*: config\.json: the architecture None": {
        "config.json": b"{}",
        "model.safetensors": b"x" * 100,
    },
    r"config\.json has 16777217 bytes": {
        "config.json": b" " * (2**24 + 1),
        "model.safetensors": b"x",
    },
}


@pytest.mark.parametrize("message", UNREADABLE)
def test_what_cannot_be_read_is_refused(hub: Hub, fetch: Callable, message: str) -> None:
    hub.add(REPO, UNREADABLE[message])
    with pytest.raises(ModelUnknown, match=message) as caught:
        fetch()
    assert REPO in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff" * 100, r"model\.safetensors is no safetensors file"),
        (b"", r"model\.safetensors is no safetensors file"),
        (b"\0\0\1\0\0\0\0\0{}", r"model\.safetensors is truncated: its header"),
        (b"\0\0\0\0\1\0\0\0{}", "no safetensors file"),
    ],
)
def test_weights_that_are_none_are_refused(
    hub: Hub, fetch: Callable, hub_directory: Path, content: bytes, message: str
) -> None:
    hub.add(REPO, hub_directory).files[FILE] = content
    with pytest.raises(ModelUnusable, match=message):
        fetch()


def test_code_of_its_own_is_never_run(hub: Hub, fetch: Callable, hub_directory: Path) -> None:
    path = hub_directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"x": "evil.Evil"}}))
    hub.add(REPO, hub_directory)
    with pytest.raises(ModelUnusable, match=r"org/tiny of the hub .* \(auto_map\)"):
        fetch()
