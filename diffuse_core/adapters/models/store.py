"""Finding and opening models, on this machine or on the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.directory_source import CONFIG, DirectorySource
from diffuse_core.adapters.models.gguf_header import is_gguf
from diffuse_core.adapters.models.gguf_source import GgufSource
from diffuse_core.adapters.models.hub_name import HubName, gguf_of_hub, parse_hub_name
from diffuse_core.adapters.models.hub_partial import JOURNAL
from diffuse_core.domain.selection import DEMO_ALIAS, DEMO_MODEL_ID
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from diffuse_core.model_ports import Progress, WeightSource

_ACCEPTED = (
    "give a model of the hub (organisation/name, maybe @revision), a directory with config.json "
    f"and *.safetensors, the path of a .gguf file, or the word {DEMO_ALIAS}"
)
_UNSAFE = (".bin", ".pt", ".pth", ".ckpt")


class FileModelStore:
    """Implements model_ports.ModelStore. What is on this machine comes before the hub."""

    def __init__(
        self,
        demo: Callable[[Progress], Path],
        hub: Callable[[HubName, Progress], WeightSource] | None = None,
    ) -> None:
        """`demo` gets the demo model, downloading it if need be, and returns its GGUF file.

        `hub` opens a model of the hub; None when there is to be no network.
        """
        self._demo = demo
        self._hub = hub

    def open(self, model: str, progress: Progress) -> WeightSource:
        """Resolve `demo`, a directory or a GGUF path, or a model of the hub; blocks.

        Raises:
            ModelUnknown: nothing of that name.
            ModelUnusable: damaged, hostile or unsupported files.
        """
        if model == DEMO_ALIAS:
            return GgufSource(self._demo(progress), DEMO_MODEL_ID)
        path = _here(model)
        if path is None:
            return self._open_hub(model, progress)
        return _open_directory(path) if path.is_dir() else _open_file(path)

    def check(self, model: str) -> None:
        """Refuse at once what is no model whatever happens; reads nothing and asks nobody.

        Raises:
            ModelUnknown: it is nothing that is here, and no name that the hub could know.
            ModelUnusable: it is neither a file nor a directory.
        """
        if model != DEMO_ALIAS and _here(model) is None and parse_hub_name(model) is None:
            raise _nowhere(model)

    def _open_hub(self, model: str, progress: Progress) -> WeightSource:
        name = parse_hub_name(model)
        if name is None or self._hub is None:
            raise _nowhere(model)
        try:
            return self._hub(name, progress)
        except ModelUnusable:
            raise
        except ModelUnknown as error:
            raise ModelUnknown(
                f"{error}. There is no file or directory {model} here, either"
            ) from error


def _here(model: str) -> Path | None:
    """The file or directory that is meant; None when there is none of that name."""
    if not model:
        raise ModelUnknown(f"no model was named; {_ACCEPTED}")
    try:
        path = Path(model).expanduser()
        if path.is_dir() or path.is_file():
            return path
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelUnknown(f"no model {_shown(model)}: {str(error)[:120]}; {_ACCEPTED}") from error
    if exists:
        raise ModelUnusable(f"{model} is neither a file nor a directory; {_ACCEPTED}")
    return None


def _nowhere(model: str) -> ModelUnknown:
    found = gguf_of_hub(model)
    if found is None:
        return ModelUnknown(
            f"no model {_shown(model)}: no such file or directory is here; {_ACCEPTED}"
        )
    repo, file = found
    return ModelUnknown(
        f"no file {_shown(model)} is here; if it is one of the hub, download it "
        f"(`hf download {repo} {file}`) and give its path"
    )


def _shown(text: str) -> str:
    return repr(text[:200])


def _open_file(path: Path) -> WeightSource:
    if path.suffix.lower() == ".gguf" or is_gguf(path):
        return GgufSource(path)
    if path.suffix.lower() in _UNSAFE:
        raise ModelUnusable(_pickled(path, path.name))
    if path.suffix == ".safetensors":
        raise ModelUnusable(f"{path} is one file of a model; give its directory: {path.parent}")
    raise ModelUnusable(f"{path} is no model (not a GGUF file); {_ACCEPTED}")


def _pickled(path: Path, name: str) -> str:
    return (
        f"{path} has its weights as {name}, a pickle, which can run code and is never "
        "loaded; convert the model to safetensors or GGUF"
    )


def _open_directory(path: Path) -> WeightSource:
    names = sorted(entry.name for entry in os.scandir(path))
    suffixes = {Path(name).suffix.lower() for name in names}
    if JOURNAL in suffixes:
        raise ModelUnusable(
            f"{path} holds only parts of a model of the hub; name the model as the hub does"
        )
    if CONFIG in names and ".safetensors" in suffixes:
        return DirectorySource(path)
    for name in names:
        if Path(name).suffix.lower() == ".gguf":
            raise ModelUnusable(f"{path} is a directory with GGUF files; give one: {path / name}")
    for name in names:
        if Path(name).suffix.lower() in _UNSAFE:
            raise ModelUnusable(_pickled(path, name))
    lacking = "no *.safetensors" if CONFIG in names else f"no {CONFIG}"
    raise ModelUnusable(f"{path} is no model: it has {lacking}; {_ACCEPTED}")
