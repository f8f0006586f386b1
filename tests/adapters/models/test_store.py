"""What a user may give as a model, and what each mistake is answered with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from diffuse_core.adapters.models.hub_name import HubName
from diffuse_core.adapters.models.store import FileModelStore
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from diffuse_core.model_ports import Progress


def silent(_: float) -> None:
    pass


def no_demo(progress: Progress) -> Path:
    raise AssertionError("nobody asked for the demo model")


@pytest.fixture
def store() -> FileModelStore:
    return FileModelStore(no_demo)


def test_a_directory_and_a_gguf_file_open(
    store: FileModelStore, save: Callable, make_model: Callable, write_gguf: Callable
) -> None:
    assert store.open(str(save()), silent).shape("fp32").layers == 3
    path = write_gguf(make_model())
    assert store.open(str(path), silent).id == "tiny"
    bare = path.with_suffix("")
    shutil.copy(path, bare)
    assert store.open(str(bare), silent).shape("fp32").layers == 3


def test_demo_asks_the_callable_and_has_its_own_name(
    make_model: Callable, write_gguf: Callable
) -> None:
    path = write_gguf(make_model(), name="whatever.gguf")
    seen: list[float] = []

    def demo(progress: Progress) -> Path:
        progress(0.5)
        return path

    assert FileModelStore(demo).open("demo", seen.append).id == "smollm2-135m-instruct"
    assert seen == [0.5]


@pytest.mark.parametrize(
    "name", ["nowhere/at/all", "org/model", "", "x" * 5000, "a\0b", "~nobody-of-that-name/x"]
)
def test_an_unknown_model_says_what_may_be_given(
    store: FileModelStore, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelUnknown, match=r"\.gguf file, or the word demo") as caught:
        store.open(name, silent)
    assert len(str(caught.value)) < 1000


class HubCalls:
    """A hub that remembers what it was asked for, and has nothing."""

    def __init__(self) -> None:
        self.names: list[HubName] = []

    def __call__(self, name: HubName, _progress: Progress) -> None:
        self.names.append(name)
        raise ModelUnknown(f"the hub has no model {name}")


def test_what_is_here_comes_before_the_hub(
    save: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = HubCalls()
    save(name="org/tiny")
    monkeypatch.chdir(tmp_path)
    assert FileModelStore(no_demo, hub).open("org/tiny", silent).id == "tiny"
    assert hub.names == []
    with pytest.raises(
        ModelUnknown,
        match=r"hub has no model org/tiny@v2\. There is no file or directory org/tiny@v2 here",
    ):
        FileModelStore(no_demo, hub).open("org/tiny@v2", silent)
    assert hub.names == [HubName("org/tiny", "v2")]


@pytest.mark.parametrize(
    "name",
    [
        "./org/name",
        "~/name",
        "/org/name",
        "..",
        "a/b/c",
        "org\\name",
        "model.gguf",
        "a/b.safetensors",
    ],
)
def test_the_hub_is_not_asked_for_paths(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    hub = HubCalls()
    with pytest.raises(ModelUnknown):
        FileModelStore(no_demo, hub).open(name, silent)
    assert hub.names == []


def test_what_can_be_no_model_is_refused_before_anything_is_asked(
    save: Callable, tmp_path: Path
) -> None:
    def nobody(_progress: object) -> Path:
        raise AssertionError("a check asks nobody")

    store = FileModelStore(nobody)
    for name in ("demo", "org/name", "dmeo", str(save())):
        store.check(name)
    for name in ("", "./nope.gguf", "~/no such file", "/nowhere/at/all", "org/name/q/m.gguf"):
        with pytest.raises(ModelUnknown):
            store.check(name)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelUnusable):
        store.check(str(tmp_path / "pipe"))


def test_a_gguf_file_on_the_hub_is_to_be_downloaded(store: FileModelStore) -> None:
    with pytest.raises(
        ModelUnknown, match=r"`hf download org/name q/m\.gguf`\) and give its path"
    ):
        store.open("org/name/q/m.gguf", silent)


def test_parts_of_a_model_are_no_model(store: FileModelStore, save: Callable) -> None:
    directory = save()
    (directory / "model.safetensors.parts").write_text("{}")
    with pytest.raises(ModelUnusable, match="only parts of a model of the hub"):
        store.open(str(directory), silent)


def test_a_path_that_is_no_model_is_unusable(
    store: FileModelStore, tmp_path: Path, save: Callable
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no model")
    named = tmp_path / "notes.gguf"
    named.write_text("no model")
    empty = tmp_path / "empty"
    empty.mkdir()
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text("{}")
    (pickled / "pytorch_model.bin").write_bytes(b"x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "m.gguf").write_bytes(b"GGUF")
    only_config = tmp_path / "only"
    only_config.mkdir()
    (only_config / "config.json").write_text("{}")
    fifo = tmp_path / "fifo.gguf"
    os.mkfifo(fifo)
    cases = {
        text: r"is no model \(not a GGUF file\)",
        named: "does not begin with GGUF",
        empty: r"it has no config\.json",
        pickled: r"pytorch_model\.bin, a pickle.*convert",
        pickled / "pytorch_model.bin": "a pickle",
        inside: r"give one: \S*m\.gguf",
        only_config: r"it has no \*\.safetensors",
        fifo: "neither a file nor a directory",
        save() / "model.safetensors": "give its directory",
    }
    for path, message in cases.items():
        with pytest.raises(ModelUnusable, match=message):
            store.open(str(path), silent)


def test_looking_at_a_model_loads_neither_torch_nor_numpy(
    save: Callable, make_model: Callable, write_gguf: Callable
) -> None:
    script = (
        "import sys\n"
        "from diffuse_core.adapters.models.store import FileModelStore\n"
        "for path in sys.argv[1:]:\n"
        "    source = FileModelStore(None).open(path, print)\n"
        "    source.shape('bf16'), source.content\n"
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules))\n"
    )
    paths = [str(save()), str(write_gguf(make_model()))]
    command = [sys.executable, "-c", script, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.strip() == "set()"
