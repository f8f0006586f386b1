"""A directory with `config.json` and safetensors as a source of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from diffuse_core.adapters.models.checked_source import CheckedSource
from diffuse_core.adapters.models.checkpoint_names import parameters_of
from diffuse_core.adapters.models.model_config import clean_config
from diffuse_core.adapters.models.safetensors_header import read_safetensors_header
from diffuse_core.adapters.models.stored_tensor import StoredTensor, network_id
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from diffuse_core.domain.bundle import Bundle

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_CONFIG_BYTES = 2**20
MAX_INDEX_BYTES = 32 * 2**20
MAX_FILES = 1024

_FileName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*\.safetensors$", max_length=255)
]


_T = TypeVar("_T")


class _Index(msgspec.Struct):
    weight_map: dict[str, _FileName]


_config_decoder = msgspec.json.Decoder(dict[str, object])
_index_decoder = msgspec.json.Decoder(_Index)


class DirectorySource(CheckedSource):
    """Reads tensors as they are stored."""

    def __init__(self, directory: Path, name: str | None = None) -> None:
        """Read and check the headers; `name` is the id on the network, else the directory's name.

        Raises:
            ModelUnusable: incomplete, damaged, hostile or of an unproven architecture.
        """
        decoded = _read_json(directory / CONFIG, MAX_CONFIG_BYTES, _config_decoder)
        config = clean_config(decoded, str(directory / CONFIG))
        super().__init__(
            name or network_id(directory.absolute()),
            str(directory),
            config,
            parameters_of(config, _read_tensors(directory), str(directory)),
        )
        self._directory = directory

    def _make_bundle(self, context: int) -> Bundle:
        from diffuse_core.adapters.models.bundle_files import directory_bundle

        return directory_bundle(self._directory, context)


def _read_json(path: Path, limit: int, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise ModelUnusable(f"{path} is larger than {limit} bytes, which no such file is")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"{path} is malformed: {error}; download it again") from error


def _read_tensors(directory: Path) -> dict[str, StoredTensor]:
    index = directory / INDEX
    if index.exists():
        return _indexed(directory, _read_json(index, MAX_INDEX_BYTES, _index_decoder))
    return read_safetensors_header(_only_file(directory))


def indexed_files(path: Path) -> list[str]:
    """The files that an index names.

    Raises:
        ModelUnusable: it is malformed, hostile or names too many.
    """
    return _files(path, _read_json(path, MAX_INDEX_BYTES, _index_decoder))


def _files(path: Path, index: _Index) -> list[str]:
    files = sorted(set(index.weight_map.values()))
    if len(files) > MAX_FILES:
        raise ModelUnusable(f"{path} names more than {MAX_FILES} files")
    return files


def _indexed(directory: Path, index: _Index) -> dict[str, StoredTensor]:
    files = _files(directory / INDEX, index)
    missing = [file for file in files if not (directory / file).is_file()]
    if missing:
        raise ModelUnusable(
            f"{directory} lacks {', '.join(missing[:3])}, which its index names "
            f"({len(missing)} of {len(files)} files missing); download the model again"
        )
    tables = {file: read_safetensors_header(directory / file) for file in files}
    tensors: dict[str, StoredTensor] = {}
    for name, file in index.weight_map.items():
        tensor = tables[file].get(name)
        if tensor is None:
            raise ModelUnusable(
                f"{directory / file} has no tensor {name}, though the index says so; "
                "download the model again"
            )
        tensors[name] = tensor
    return tensors


def _only_file(directory: Path) -> Path:
    if (directory / SINGLE).exists():
        return directory / SINGLE
    files = sorted(directory.glob("*.safetensors"))
    if len(files) == 1:
        return files[0]
    raise ModelUnusable(
        f"{directory} has {len(files)} safetensors files and neither {SINGLE} nor {INDEX}; "
        "download the model again with all its files"
    )
